// Random workloads through the scheduler, with a fake model that notices every wrong block,
// position or token. Each answer must be what the request gives alone, in order, whatever else
// happened.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "schedule/fake_clients.h"
#include "schedule/fake_model.h"
#include "schedule/scheduler.h"

namespace aerie::schedule {
namespace {

// The admission rule, written down again: what a plan started must have fitted before it.
class AdmissionCheck {
  public:
    AdmissionCheck(const Scheduler& scheduler, const std::map<RequestId, Client>& clients)
        : free_(static_cast<double>(scheduler.counts().free_tokens)) {
        for (const auto& [id, client] : clients) {
            const Sequence* sequence = scheduler.find(id);
            if (!sequence) continue;
            if (sequence->state == State::kRunning)
                free_ -= growth(*sequence) * scheduler.counts().new_token_ratio;
            if (sequence->state == State::kWaiting) waiting_[id] = growth(*sequence);
        }
    }
    void check(const Plan& plan, int page_size) {
        for (const PlanEntry& entry : plan.prefill) {
            const auto it = waiting_.find(entry.sequence->id);
            if (it == waiting_.end()) continue;
            const double wanted = static_cast<double>(entry.sequence->tokens.size()) + it->second;
            ASSERT_LE(wanted + page_size, free_ + 1);
            free_ -= wanted;
        }
    }

  private:
    static double growth(const Sequence& sequence) {
        return std::min(sequence.num_remaining(), 4096);
    }
    double free_;
    std::map<RequestId, double> waiting_;  // growth
};

// --------------------------------------------------------------------------

void run_unified(uint64_t seed) {
    Random random(seed);
    const SchedulerOptions options = random_options(random, Flavour::kUnified);
    Scheduler scheduler(options);
    FakeReplica replica(options.kv);
    const size_t depth = random(1, 3);  // steps that run while the next is planned
    std::map<RequestId, Client> clients;
    const int num_requests = random(1, 12);
    RequestId next_id = 1, newest_started = 0;

    const int64_t longest = scheduler.max_request_tokens();
    int64_t steps = 0, limit = 0;
    while (true) {
        if (static_cast<int>(next_id) <= num_requests && random.chance(40)) {
            const Request request = random_request(random, next_id++, longest);
            const bool fits = static_cast<int64_t>(request.prompt.size()) + 1 <= longest;
            ASSERT_EQ(scheduler.add(request).ok(), fits);
            if (fits) clients[request.id].request = request;
            limit = most_steps(clients, longest);
        }
        if (!clients.empty() && random.chance(3)) {
            const RequestId id = random(1, static_cast<int>(next_id) - 1);
            scheduler.abort(id);
            if (const auto it = clients.find(id); it != clients.end() && !it->second.ended())
                it->second.aborted = true;
        }
        bool planned = false;
        if (replica.num_running() < depth) {
            AdmissionCheck admission(scheduler, clients);
            Plan plan = scheduler.plan();
            ASSERT_NO_FATAL_FAILURE(check_prefill(plan, options));
            ASSERT_NO_FATAL_FAILURE(admission.check(plan, options.kv.page_size));
            ASSERT_LE(scheduler.counts().num_running, options.max_running_requests);
            for (const PlanEntry& entry : plan.prefill) {
                if (entry.first > 0 || entry.sequence->retracted) continue;
                ASSERT_GT(entry.sequence->id, newest_started) << "overtaken";
                newest_started = entry.sequence->id;
            }
            planned = !plan.empty();
            if (planned) {
                ASSERT_NO_FATAL_FAILURE(replica.start(std::move(plan)));
            }
            steps += planned;
        }
        if (replica.num_running() > 0 && (!planned || random.chance(60))) {
            FakeReplica::Result result;
            ASSERT_NO_FATAL_FAILURE(replica.finish(result));
            for (const TokenOut& out : scheduler.on_result(result.plan, result.advances))
                ASSERT_NO_FATAL_FAILURE(clients.at(out.id).receive(out));
        } else if (!planned && static_cast<int>(next_id) > num_requests) {
            break;  // nothing runs and nothing can be planned
        }
        ASSERT_LE(steps, limit) << "no end";
    }
    ASSERT_TRUE(scheduler.idle());
    ASSERT_EQ(scheduler.counts().used_tokens, 0);
    for (const auto& [id, client] : clients) {
        ASSERT_TRUE(client.ended()) << "request " << id;
        ASSERT_NO_FATAL_FAILURE(client.check(longest)) << "request " << id;
    }
}

TEST(SchedulerProperty, Unified) {
    for (int seed = 0; seed < kNumWorkloads; ++seed) {
        run_unified(seed);
        ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    }
}

}  // namespace
}  // namespace aerie::schedule
