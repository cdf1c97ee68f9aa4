// Random workloads through the scheduler, with a fake model that notices every wrong block,
// position or token. Each answer must be what the request gives alone, in order, whatever else
// happened.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "schedule/fake_clients.h"
#include "schedule/fake_model.h"
#include "schedule/scheduler.h"

namespace aerie::schedule {
namespace {

// The admission rule, written down again for what a plan has left: room for all growth of those
// that it started, and for the likely growth of those that ran before.
class AdmissionCheck {
  public:
    AdmissionCheck(const Scheduler& scheduler, const std::map<RequestId, Client>& clients) {
        for (const auto& [id, client] : clients) {
            const Sequence* sequence = scheduler.find(id);
            if (sequence && sequence->state == State::kWaiting) waiting_.insert(id);
            if (sequence && sequence->state == State::kRunning) running_.push_back(sequence);
        }
    }
    void check(const Plan& plan, const Scheduler& scheduler) const {
        double wanted = 0;
        int num_started = 0;
        for (const PlanEntry& entry : plan.prefill) {
            if (!waiting_.contains(entry.sequence->id)) continue;
            wanted += std::min(entry.sequence->num_remaining(), 4096);
            ++num_started;
        }
        // What runs alone needs no more than the whole cache.
        if (num_started == 0 || (num_started == 1 && running_.empty())) return;
        ASSERT_TRUE(plan.retracted.empty());
        for (const Sequence* sequence : running_)
            wanted += std::min(sequence->num_remaining(), 4096) * scheduler.counts().new_token_ratio;
        const cache::KvBlocks& kv = scheduler.kv();
        ASSERT_LE(wanted, scheduler.counts().free_tokens + kv.page_size() * (kv.cp() - 1) + 1);
    }

  private:
    std::set<RequestId> waiting_;
    std::vector<const Sequence*> running_;
};

// --------------------------------------------------------------------------

// What the workloads have met, of all.
struct Met {
    int64_t num_cached = 0, num_mixed = 0, num_retracted = 0;
};

void run_unified(uint64_t seed, Met& met) {
    Random random(seed);
    const SchedulerOptions options = random_options(random, Flavour::kUnified);
    FakeReplica replica(options.kv, options.num_drafts);
    Scheduler scheduler(copied_by(replica, options));
    const size_t depth = random(1, 3);  // steps that run while the next is planned
    std::map<RequestId, Client> clients;
    const int num_requests = random(1, 12);
    RequestId next_id = 1, newest_started = 0;
    Conversations conversations;

    const int64_t longest = scheduler.max_request_tokens();
    int64_t steps = 0, limit = 0;
    while (true) {
        if (static_cast<int>(next_id) <= num_requests && random.chance(40)) {
            Request request = random_request(random, next_id++, longest);
            conversations.begin_like_another(random, request, longest);
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
            replica.cache.copy(scheduler.take_copies());
            ASSERT_NO_FATAL_FAILURE(check_prefill(plan, options));
            ASSERT_NO_FATAL_FAILURE(admission.check(plan, scheduler));
            met.num_mixed += !plan.prefill.empty() && !plan.decode.empty();
            ASSERT_LE(scheduler.counts().num_running, options.max_running_requests);
            for (const PlanEntry& entry : plan.prefill) {
                if (options.prefix_cache || options.policy.policy != Policy::kFcfs) break;
                if (entry.first > 0 || entry.sequence->retracted) continue;
                ASSERT_GT(entry.sequence->id, newest_started) << "overtaken";
                newest_started = entry.sequence->id;
            }
            planned = !plan.empty();
            if (planned) {
                ASSERT_NO_FATAL_FAILURE(replica.start(std::move(plan), scheduler.kv()));
            }
            steps += planned;
        }
        if (replica.num_running() > 0 && (!planned || random.chance(60))) {
            FakeReplica::Result result;
            ASSERT_NO_FATAL_FAILURE(replica.finish(result));
            for (const TokenOut& out : scheduler.on_result(result.plan, result.advances)) {
                Client& client = clients.at(out.id);
                ASSERT_NO_FATAL_FAILURE(client.receive(out));
                ASSERT_LT(out.cached_tokens, static_cast<int>(client.request.prompt.size()));
                if (!client.ended()) continue;
                conversations.add(client.request.prompt, client.output);
                met.num_cached += out.cached_tokens;
            }
        } else if (!planned && static_cast<int>(next_id) > num_requests) {
            break;  // nothing runs and nothing can be planned
        }
        ASSERT_LE(steps, limit) << "no end";
    }
    met.num_retracted += static_cast<int64_t>(scheduler.counts().num_retracted);
    ASSERT_NO_FATAL_FAILURE(check_nothing_left(scheduler));
    for (const auto& [id, client] : clients) {
        ASSERT_TRUE(client.ended()) << "request " << id;
        ASSERT_NO_FATAL_FAILURE(client.check(longest)) << "request " << id;
    }
}

TEST(SchedulerProperty, Unified) {
    Met met;
    for (int seed = 0; seed < kNumWorkloads; ++seed) {
        run_unified(seed, met);
        ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    }
    EXPECT_GT(met.num_cached, kNumWorkloads);
    EXPECT_GT(met.num_mixed, kNumWorkloads / 4);
    EXPECT_GT(met.num_retracted, kNumWorkloads / 50);
}

}  // namespace
}  // namespace aerie::schedule
