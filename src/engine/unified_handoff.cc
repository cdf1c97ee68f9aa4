#include <unordered_map>

#include "engine/handoff.h"
#include "request/convert.h"

namespace aerie::engine {
namespace {

class UnifiedHandoff final : public KvHandoff {
  public:
    explicit UnifiedHandoff(schedule::Scheduler& scheduler) : scheduler_(scheduler) {}

    void add(const Request& request) override {
        if (Status added = scheduler_.add(request); !added) {
            failed_.push_back(aborted(request.id, added.message(), ErrorKind::kBadRequest));
        }
    }
    void abort(RequestId id) override { scheduler_.abort(id); }
    void fail(RequestId id, const std::string& why) override {
        scheduler_.abort(id);
        failed_.push_back(aborted(id, why));
    }
    void receive(std::vector<TokenOut>& out) override {
        out.insert(out.end(), failed_.begin(), failed_.end());
        failed_.clear();
    }
    // Retracted sequences are back in the scheduler's own queue.
    void planned(const schedule::Plan&, std::vector<TokenOut>&) override {}
    void layer_done(int, int) override {}
    void sampled(std::vector<TokenOut>&) override {}

  private:
    schedule::Scheduler& scheduler_;
    std::vector<TokenOut> failed_;
};

}  // namespace

std::unique_ptr<KvHandoff> make_unified_handoff(schedule::Scheduler& scheduler) {
    return std::make_unique<UnifiedHandoff>(scheduler);
}

}  // namespace aerie::engine
