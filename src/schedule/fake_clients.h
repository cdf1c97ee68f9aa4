// For tests: random requests, and clients that know the answers they must get.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "schedule/fake_model.h"
#include "schedule/scheduler.h"

namespace aerie::schedule {

inline constexpr int kNumWorkloads = 10000;

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

inline SchedulerOptions random_options(Random& random, Flavour flavour) {
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
    options.prefix_cache = random.chance(70);
    if (random.chance(50)) options.kv.lower.num_host_slots = random(1, 12);
    if (random.chance(50)) options.kv.lower.num_file_slots = random(1, 12);
    options.mixed_chunks = random.chance(50);
    options.policy.policy = static_cast<Policy>(random(0, static_cast<int>(Policy::kPriority)));
    options.policy.low_priority_values_first = random.chance(30);
    options.eos_ids = {kFakeEos};
    return options;
}

inline Request random_request(Random& random, RequestId id, int64_t longest) {
    Request request;
    request.id = id;
    const int num_tokens = random(1, static_cast<int>(std::max<int64_t>(longest - 1, 1)));
    for (int i = 0; i < (random.chance(70) ? std::min(num_tokens, 12) : num_tokens); ++i)
        request.prompt.push_back(random(2, 31));
    request.sampling.max_new_tokens = random.chance(10) ? 1000 : random(0, 30);
    request.sampling.ignore_eos = random.chance(50);
    request.decode_replica = 0;
    request.priority = random(-2, 2);
    if (random.chance(20)) request.cache_salt = random.chance(50) ? "a" : "b";
    return request;
}

// Half of the prompts begin like an earlier request, or go on where it has ended.
class Conversations {
  public:
    void begin_like_another(Random& random, Request& request, int64_t longest) const {
        if (texts_.empty() || random.chance(50)) return;
        std::vector<int32_t> prompt =
            texts_[random(0, static_cast<int>(texts_.size()) - 1)];
        prompt.resize(random(1, static_cast<int>(prompt.size())));
        const auto room = static_cast<size_t>(std::max<int64_t>(longest - 1, 1));
        prompt.insert(prompt.end(), request.prompt.begin(), request.prompt.end());
        if (prompt.size() > room) prompt.resize(room);
        request.prompt = std::move(prompt);
    }
    void add(const std::vector<int32_t>& prompt, const std::vector<int32_t>& output) {
        texts_.push_back(prompt);
        texts_.back().insert(texts_.back().end(), output.begin(), output.end());
    }

  private:
    std::vector<std::vector<int32_t>> texts_;
};

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
inline int64_t most_steps(const std::map<RequestId, Client>& clients, int64_t longest) {
    int64_t steps = 100;
    for (const auto& [id, client] : clients) {
        const auto num_prompt = static_cast<int64_t>(client.request.prompt.size());
        const int64_t num_output = std::min<int64_t>(
            std::max(client.request.sampling.max_new_tokens, 1), longest - num_prompt);
        steps += (num_output + 1) * (longest + 1);
    }
    return steps;
}

inline void check_prefill(const Plan& plan, const SchedulerOptions& options) {
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
    ASSERT_TRUE(plan.prefill.empty() || plan.decode.empty() || (options.mixed_chunks && chunked));
    if (!plan.prefill.empty())
        for (const PlanEntry& entry : plan.decode) num_tokens += entry.num_tokens;
    if (chunked || plan.prefill.size() > 1) {
        ASSERT_LE(plan.prefill.empty() ? 0 : num_tokens,
                  chunked ? options.chunked_prefill_size : options.max_prefill_tokens);
    }
}

// Nothing is known any more: every block is free, or the prefix cache alone holds it.
inline void check_nothing_left(Scheduler& scheduler) {
    ASSERT_TRUE(scheduler.idle());
    ASSERT_EQ(scheduler.counts().used_tokens, 0);
    ASSERT_TRUE(scheduler.flush_cache());
    const cache::KvBlocks& kv = scheduler.kv();
    for (int rank = 0; rank < kv.cp(); ++rank) ASSERT_EQ(kv.pool(rank).num_used(), 0);
    const Counts counts = scheduler.counts();
    ASSERT_EQ(counts.num_running + counts.num_waiting + counts.num_queued + counts.num_offered +
                  counts.num_prefilled,
              0);
    ASSERT_EQ(counts.evictable_tokens, 0);
}

}  // namespace aerie::schedule
