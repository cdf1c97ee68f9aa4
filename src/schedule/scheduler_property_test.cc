// Random workloads through the scheduler, with a fake model that notices every wrong block,
// position or token. Each answer must be what the request gives alone, in order, whatever else
// happened.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "schedule/fake_model.h"
#include "schedule/scheduler.h"

namespace aerie::schedule {
namespace {

constexpr int kNumWorkloads = 10000;

class Random {
  public:
    explicit Random(uint64_t seed) : engine_(static_cast<uint32_t>(mix64(seed + 1))) {}
    int operator()(int low, int high) {
        return low + static_cast<int>(engine_() % static_cast<uint32_t>(high - low + 1));
    }
    bool chance(int percent) { return (*this)(0, 99) < percent; }

  private:
    std::mt19937 engine_;
};

SchedulerOptions random_options(Random& random, Flavour flavour) {
    SchedulerOptions options;
    options.flavour = flavour;
    options.kv.page_size = random(1, 4);
    options.kv.cp = random(1, 3);
    options.kv.num_blocks = random(2, 24) / options.kv.cp + 2;
    options.max_running_requests = random(1, 8);
    options.chunked_prefill_size = random.chance(20) ? -1 : options.kv.page_size * random(1, 6);
    options.max_prefill_tokens = random(8, 40);
    options.schedule_conservativeness = random(1, 15) / 10.0;
    options.decode_reserve = random.chance(50) ? random(1, 8) : 512;
    options.num_drafts = random.chance(20) ? random(1, 4) : 0;
    options.eos_ids = {kFakeEos};
    return options;
}

Request random_request(Random& random, RequestId id, int64_t longest) {
    Request request;
    request.id = id;
    const int num_tokens = random(1, static_cast<int>(std::max<int64_t>(longest - 1, 1)));
    for (int i = 0; i < (random.chance(70) ? std::min(num_tokens, 12) : num_tokens); ++i)
        request.prompt.push_back(random(2, 31));
    request.sampling.max_new_tokens = random.chance(10) ? 1000 : random(0, 30);
    request.sampling.ignore_eos = random.chance(50);
    request.decode_replica = 0;
    return request;
}

// What the client has seen of a request.
struct Client {
    Request request;
    std::vector<int32_t> output;
    FinishReason finish = FinishReason::kNone;
    bool aborted = false;

    void receive(const TokenOut& out) {
        ASSERT_FALSE(aborted);
        ASSERT_EQ(finish, FinishReason::kNone);
        ASSERT_EQ(out.position, static_cast<int>(output.size()));
        output.insert(output.end(), out.tokens.begin(), out.tokens.end());
        finish = out.finish;
    }
    bool ended() const { return aborted || finish != FinishReason::kNone; }

    void check(int64_t longest) const {
        if (aborted) return;
        const int limit = static_cast<int>(
            std::min<int64_t>(std::max(request.sampling.max_new_tokens, 1),
                              longest - static_cast<int64_t>(request.prompt.size())));
        ASSERT_EQ(output, fake_answer(request, limit));
        const bool stopped = output.back() == kFakeEos && !request.sampling.ignore_eos;
        ASSERT_EQ(finish, stopped ? FinishReason::kStop : FinishReason::kLength);
    }
};

// Steps that the work of these requests may take, were each computed alone and started again for
// each of its tokens: the bound on waiting that the header promises.
int64_t most_steps(const std::map<RequestId, Client>& clients, int64_t longest) {
    int64_t steps = 100;
    for (const auto& [id, client] : clients) {
        const auto num_prompt = static_cast<int64_t>(client.request.prompt.size());
        const int64_t num_output = std::min<int64_t>(
            std::max(client.request.sampling.max_new_tokens, 1), longest - num_prompt);
        steps += (num_output + 1) * (longest + 1);
    }
    return steps;
}

void check_prefill(const Plan& plan, const SchedulerOptions& options) {
    int num_tokens = 0;
    for (size_t i = 0; i < plan.prefill.size(); ++i) {
        const PlanEntry& entry = plan.prefill[i];
        num_tokens += entry.num_tokens;
        ASSERT_GT(entry.num_tokens, 0);
        if (entry.sample) continue;
        ASSERT_EQ(i + 1, plan.prefill.size()) << "only the last is cut";
        ASSERT_EQ((entry.first + entry.num_tokens) % options.kv.page_size, 0);
    }
    const bool chunked = options.chunked_prefill_size > 0;
    if (chunked || plan.prefill.size() > 1) {
        ASSERT_LE(num_tokens, chunked ? options.chunked_prefill_size : options.max_prefill_tokens);
    }
}

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

// --- one unified replica
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

// --- a prefill and a decode replica
// ---------------------------------------------------------------

// The two schedulers with messages between them that arrive late, in the order of each request.
class Pair {
  public:
    explicit Pair(uint64_t seed)
        : random_(seed),
          prefill_options_(random_options(random_, Flavour::kPrefill)),
          decode_options_(random_options(random_, Flavour::kDecode)),
          prefill_(prefill_options_),
          decode_(decode_options_),
          prefill_replica_(prefill_options_.kv),
          decode_replica_(decode_options_.kv) {}

    void run();
    uint64_t num_retracted() const { return decode_.counts().num_retracted; }

  private:
    enum class Kind { kAnnounce, kOffer, kDone, kAck, kRetract, kStopped };
    struct Message {
        Kind kind;
        RequestId id;
        int delay;
        int32_t token = 0;
        std::vector<int32_t> tokens = {};
        int num_output = 0;
    };

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
    Scheduler prefill_, decode_;
    FakeReplica prefill_replica_, decode_replica_;
    std::map<RequestId, Client> clients_;
    std::vector<Message> messages_;
    RequestId next_id_ = 1;
    int64_t steps_ = 0;
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
            const Status status = prefill_.add(request, message.num_output);
            if (!status.ok()) cancel(id);  // the prefill cache is too small for what it has become
            break;
        }
        case Kind::kDone: {
            const Sequence* sequence = decode_.find(id);
            if (!sequence) break;
            const int num_kv = static_cast<int>(sequence->tokens.size());
            for (int p = 0; p < num_kv; ++p)
                decode_replica_.cache.write(*sequence, p, sequence->tokens[p]);
            const Result<TokenOut> out = decode_.start_decode(id, message.token);
            ASSERT_TRUE(out.ok());
            ASSERT_NO_FATAL_FAILURE(clients_.at(id).receive(Result<TokenOut>(out).value()));
            send({Kind::kAck, id, random_(0, 5)});
            break;
        }
    }
}

void Pair::arrive() {
    const int64_t longest = std::min(prefill_.max_request_tokens(), decode_.max_request_tokens());
    const Request request = random_request(random_, next_id_++, longest);
    if (static_cast<int64_t>(request.prompt.size()) + 1 > longest) return;
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
        ASSERT_TRUE(plan.decode.empty());
        ASSERT_NO_FATAL_FAILURE(check_prefill(plan, prefill_options_));
        for (const PlanEntry& entry : plan.prefill) ASSERT_TRUE(entry.sequence->may_start);
        steps_ += !plan.empty();
        if (!plan.empty()) {
            ASSERT_NO_FATAL_FAILURE(prefill_replica_.start(std::move(plan)));
        }
    }
    if (prefill_replica_.num_running() == 0 || random_.chance(40)) return;
    FakeReplica::Result result;
    ASSERT_NO_FATAL_FAILURE(prefill_replica_.finish(result));
    for (const TokenOut& out : prefill_.on_result(result.plan, result.advances))
        send({Kind::kDone, out.id, random_(0, 5), out.tokens.at(0)});
}

void Pair::step_decode() {
    for (const RequestId id : decode_.take_offers()) send({Kind::kOffer, id, random_(0, 5)});
    if (decode_replica_.num_running() < 2) {
        Plan plan = decode_.plan();
        ASSERT_TRUE(plan.prefill.empty());
        for (const Retracted& r : plan.retracted)
            send({Kind::kRetract, r.id, random_(0, 5), 0, r.tokens, r.num_output});
        steps_ += !plan.empty();
        if (!plan.empty()) {
            ASSERT_NO_FATAL_FAILURE(decode_replica_.start(std::move(plan)));
        }
    }
    const Counts counts = decode_.counts();
    ASSERT_LE(counts.num_running + counts.num_offered, decode_options_.max_running_requests);
    if (decode_replica_.num_running() == 0 || random_.chance(40)) return;
    FakeReplica::Result result;
    ASSERT_NO_FATAL_FAILURE(decode_replica_.finish(result));
    for (const TokenOut& out : decode_.on_result(result.plan, result.advances))
        ASSERT_NO_FATAL_FAILURE(clients_.at(out.id).receive(out));
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
    ASSERT_EQ(prefill_.counts().used_tokens, 0);
    ASSERT_EQ(decode_.counts().used_tokens, 0);
    for (const auto& [id, client] : clients_) {
        ASSERT_TRUE(client.ended()) << "request " << id;
        ASSERT_NO_FATAL_FAILURE(client.check(decode_.max_request_tokens())) << "request " << id;
    }
}

TEST(SchedulerProperty, PrefillAndDecode) {
    uint64_t num_retracted = 0;
    for (int seed = 0; seed < kNumWorkloads; ++seed) {
        Pair pair(seed);
        pair.run();
        ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
        num_retracted += pair.num_retracted();
    }
    EXPECT_GT(num_retracted, 1000u) << "the workloads seldom fill the cache";
}

}  // namespace
}  // namespace aerie::schedule
