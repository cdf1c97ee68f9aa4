// Random workloads through a prefill and a decode replica, as scheduler_property_test.cc does with
// a unified one.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "schedule/fake_clients.h"
#include "schedule/fake_model.h"
#include "schedule/scheduler.h"

namespace aerie::schedule {
namespace {

// ---------------------------------------------------------------

// The two schedulers with messages between them that arrive late, in the order of each request.
class Pair {
  public:
    explicit Pair(uint64_t seed)
        : random_(seed),
          prefill_options_(random_options(random_, Flavour::kPrefill)),
          decode_options_(random_options(random_, Flavour::kDecode)),
          longest_(std::min(agree_on_longest(prefill_options_, decode_options_),
                            agree_on_longest(decode_options_, prefill_options_))),
          prefill_replica_(prefill_options_.kv),
          decode_replica_(decode_options_.kv, decode_options_.num_drafts),
          prefill_(copied_by(prefill_replica_, prefill_options_)),
          decode_(copied_by(decode_replica_, decode_options_)) {}

    void run();
    uint64_t num_retracted() const { return decode_.counts().num_retracted; }
    int64_t num_tails() const { return num_tails_; }
    int64_t num_cached_on_decode() const { return num_cached_on_decode_; }

  private:
    enum class Kind { kAnnounce, kOffer, kTaken, kDone, kAck, kRetract, kStopped };
    struct Message {
        Kind kind;
        RequestId id;
        int delay;
        int32_t token = 0;
        std::vector<int32_t> tokens = {};
        int num_output = 0;
    };

    // The longest request of one replica is known to the other.
    static int64_t agree_on_longest(SchedulerOptions& options, const SchedulerOptions& other) {
        const cache::KvBlocksOptions& kv = other.kv;
        options.max_request_tokens = (int64_t{kv.num_blocks} * kv.cp - 1) * kv.page_size;
        return options.max_request_tokens;
    }

    void send(Message message) {
        for (const Message& other : messages_)  // keep the order of each request
            if (other.id == message.id) message.delay = std::max(message.delay, other.delay);
        messages_.push_back(std::move(message));
    }
    void deliver(const Message& message);
    void arrive();
    void cancel(RequestId id);
    void step_prefill();
    void step_decode();
    bool has_work() const;

    Random random_;
    SchedulerOptions prefill_options_, decode_options_;
    int64_t longest_;
    FakeReplica prefill_replica_, decode_replica_;
    Scheduler prefill_, decode_;
    std::map<RequestId, Client> clients_;
    std::vector<Message> messages_;
    Conversations conversations_;
    RequestId next_id_ = 1;
    int64_t steps_ = 0, num_tails_ = 0, num_cached_on_decode_ = 0;
};

void Pair::deliver(const Message& message) {
    const RequestId id = message.id;
    switch (message.kind) {
        case Kind::kAnnounce:
            decode_.announced(id);
            break;
        case Kind::kOffer:
            prefill_.may_start(id);
            break;
        case Kind::kTaken:
            prefill_.abort(id);
            break;
        case Kind::kAck:
            prefill_.release(id);
            break;
        case Kind::kStopped:
            decode_.release(id);
            break;
        case Kind::kRetract: {
            if (clients_.at(id).aborted) break;
            Request request = clients_.at(id).request;
            request.prompt = message.tokens;
            ASSERT_TRUE(prefill_.add(request, message.num_output).ok());
            break;
        }
        case Kind::kDone: {
            const Sequence* sequence = decode_.find(id);
            if (!sequence) break;
            const auto kv = fake_kv(sequence->cache_salt, sequence->tokens);
            for (int p = 0; p < static_cast<int>(kv.size()); ++p) {
                if (p < sequence->num_cached) {
                    ASSERT_NO_FATAL_FAILURE(decode_replica_.cache.check(*sequence, p, kv[p]));
                } else {
                    decode_replica_.cache.write(*sequence, p, kv[p]);
                }
            }
            const Result<TokenOut> out = decode_.start_decode(id, message.token);
            ASSERT_TRUE(out.ok());
            ASSERT_NO_FATAL_FAILURE(clients_.at(id).receive(Result<TokenOut>(out).value()));
            send({Kind::kAck, id, random_(0, 5)});
            break;
        }
    }
}

void Pair::arrive() {
    ASSERT_EQ(prefill_.max_request_tokens(), longest_);
    ASSERT_EQ(decode_.max_request_tokens(), longest_);
    Request request = random_request(random_, next_id_++, longest_);
    conversations_.begin_like_another(random_, request, longest_);
    if (static_cast<int64_t>(request.prompt.size()) + 1 > longest_) return;
    ASSERT_TRUE(prefill_.add(request).ok());
    ASSERT_TRUE(decode_.add(request).ok());
    clients_[request.id].request = request;
}

// Both sides hear of it; where the prefill side may be writing, it says when it has stopped.
void Pair::cancel(RequestId id) {
    const auto it = clients_.find(id);
    if (it == clients_.end() || it->second.ended()) return;
    it->second.aborted = true;
    prefill_.abort(id);
    decode_.abort(id);
    std::erase_if(messages_, [id](const Message& message) { return message.id == id; });
    send({Kind::kAck, id, random_(0, 9)});
    send({Kind::kStopped, id, random_(0, 9)});
}

void Pair::step_prefill() {
    for (const RequestId id : prefill_.take_announcements())
        send({Kind::kAnnounce, id, random_(0, 5)});
    if (prefill_replica_.num_running() < 2) {
        Plan plan = prefill_.plan();
        prefill_replica_.cache.copy(prefill_.take_copies());
        ASSERT_TRUE(plan.decode.empty());
        ASSERT_NO_FATAL_FAILURE(check_prefill(plan, prefill_options_));
        for (const PlanEntry& entry : plan.prefill) ASSERT_TRUE(entry.sequence->may_start);
        steps_ += !plan.empty();
        if (!plan.empty()) {
            ASSERT_NO_FATAL_FAILURE(prefill_replica_.start(std::move(plan), prefill_.kv()));
        }
    }
    if (prefill_replica_.num_running() == 0 || random_.chance(40)) return;
    FakeReplica::Result result;
    ASSERT_NO_FATAL_FAILURE(prefill_replica_.finish(result));
    for (const TokenOut& out : prefill_.on_result(result.plan, result.advances))
        send({Kind::kDone, out.id, random_(0, 5), out.tokens.at(0)});
}

void Pair::step_decode() {
    const std::vector<RequestId> offers = decode_.take_offers();
    decode_replica_.cache.copy(decode_.take_copies());
    for (const RequestId id : offers) {
        const Sequence& sequence = *decode_.find(id);
        num_cached_on_decode_ += sequence.num_cached;
        const int tail = static_cast<int>(sequence.tokens.size()) - sequence.num_cached;
        if (random_.chance(50)) {
            ASSERT_EQ(decode_.start_tail(id).ok(), tail <= decode_.max_tail_tokens());
        }
        const bool offered = sequence.state == State::kOffered;
        num_tails_ += !offered;
        send({offered ? Kind::kOffer : Kind::kTaken, id, random_(0, 5)});
    }
    if (decode_replica_.num_running() < 2) {
        Plan plan = decode_.plan();
        decode_replica_.cache.copy(decode_.take_copies());
        ASSERT_NO_FATAL_FAILURE(check_prefill(plan, decode_options_));
        for (const Retracted& r : plan.retracted)
            send({Kind::kRetract, r.id, random_(0, 5), 0, r.tokens, r.num_output});
        steps_ += !plan.empty();
        if (!plan.empty()) {
            ASSERT_NO_FATAL_FAILURE(decode_replica_.start(std::move(plan), decode_.kv()));
        }
    }
    const Counts counts = decode_.counts();
    ASSERT_LE(counts.num_running + counts.num_offered, decode_options_.max_running_requests);
    if (decode_replica_.num_running() == 0 || random_.chance(40)) return;
    FakeReplica::Result result;
    ASSERT_NO_FATAL_FAILURE(decode_replica_.finish(result));
    for (const TokenOut& out : decode_.on_result(result.plan, result.advances)) {
        Client& client = clients_.at(out.id);
        ASSERT_NO_FATAL_FAILURE(client.receive(out));
        if (client.ended()) conversations_.add(client.request.prompt, client.output);
    }
}

bool Pair::has_work() const {
    return !messages_.empty() || prefill_replica_.num_running() > 0 ||
           decode_replica_.num_running() > 0 || !prefill_.idle() || !decode_.idle();
}

void Pair::run() {
    const int num_requests = random_(1, 12);
    int64_t rounds = 0, limit = 1000;
    while (static_cast<int>(next_id_) <= num_requests || has_work()) {
        if (static_cast<int>(next_id_) <= num_requests && random_.chance(30)) {
            ASSERT_NO_FATAL_FAILURE(arrive());
            limit = 1000 + 30 * most_steps(clients_, decode_.max_request_tokens());
        }
        if (random_.chance(2)) cancel(random_(1, static_cast<int>(next_id_)));
        ASSERT_NO_FATAL_FAILURE(step_prefill());
        ASSERT_NO_FATAL_FAILURE(step_decode());
        std::vector<Message> due;
        for (Message& message : messages_)
            if (message.delay-- == 0) due.push_back(message);
        std::erase_if(messages_, [](const Message& message) { return message.delay < 0; });
        for (const Message& message : due) ASSERT_NO_FATAL_FAILURE(deliver(message));
        ASSERT_LE(++rounds, limit) << "no end";
    }
    ASSERT_NO_FATAL_FAILURE(check_nothing_left(prefill_));
    ASSERT_NO_FATAL_FAILURE(check_nothing_left(decode_));
    for (const auto& [id, client] : clients_) {
        ASSERT_TRUE(client.ended()) << "request " << id;
        ASSERT_NO_FATAL_FAILURE(client.check(decode_.max_request_tokens())) << "request " << id;
    }
}

TEST(SchedulerProperty, PrefillAndDecode) {
    uint64_t num_retracted = 0;
    int64_t num_tails = 0, num_cached = 0;
    for (int seed = 0; seed < kNumWorkloads; ++seed) {
        Pair pair(seed);
        pair.run();
        ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
        num_retracted += pair.num_retracted();
        num_tails += pair.num_tails();
        num_cached += pair.num_cached_on_decode();
    }
    EXPECT_GT(num_tails, kNumWorkloads / 10);
    EXPECT_GT(num_cached, kNumWorkloads / 2);
    EXPECT_GT(num_retracted, 1000u) << "the workloads seldom fill the cache";
}

}  // namespace
}  // namespace aerie::schedule
