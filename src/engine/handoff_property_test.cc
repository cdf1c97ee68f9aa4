// A prefill and a decode replica with a fake model, and everything real between them: schedulers,
// handoffs, both sides of the transfer, a fabric. Random requests that begin alike, tiny pools,
// cancels at any moment, leases that run out, messages and copies that come late and in another
// order, connections that break. Every answer is right, every position that a step reads holds what it
// must, and nothing is left behind.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "base/clock.h"
#include "base/fault.h"
#include "comm/port_numbers.h"
#include "comm/scoped_region.h"
#include "engine/handoff.h"
#include "metrics/registry.h"
#include "schedule/fake_clients.h"
#include "schedule/fake_model.h"
#include "transfer/testing/held_fabric.h"

namespace aerie::engine {
namespace {

using schedule::Client;
using schedule::FakeReplica;
using schedule::Flavour;
using schedule::Random;
using transfer::HeldFabric;
using transfer::Policy;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kNumWorlds = 8;
#else
constexpr int kNumWorlds = 40;
#endif
constexpr int kRequestsPerWorld = 60;
constexpr int kAnyToken = std::numeric_limits<int32_t>::max();

// One replica: what its leader does, without threads of its own.
class Replica {
  public:
    Replica(const schedule::SchedulerOptions& options, std::unique_ptr<comm::Fabric> fabric)
        : held(std::move(fabric)), scheduler(copied_by(model_, options)), model_(options.kv),
          cp_(options.kv.cp), page_size_(options.kv.page_size) {}

    std::vector<transfer::Pool> pools() {
        std::vector<transfer::Pool> result;
        for (int c = 0; c < cp_; ++c) {
            const auto slots = model_.cache.pool(c);
            auto* base = reinterpret_cast<std::byte*>(slots.data());
            auto region = held.register_memory(base, slots.size() * sizeof(uint64_t));
            CHECK(region.ok(), "{}", region.message());
            result.push_back({base, 1, static_cast<int>(slots.size()) / page_size_, page_size_,
                              sizeof(uint64_t), region->key});
            regions_.emplace_back(held, *std::move(region));
        }
        return result;
    }

    void copy_kv() { model_.cache.copy(scheduler.take_copies()); }

    std::vector<TokenOut> round() {
        std::vector<TokenOut> out;
        handoff->receive(out);
        schedule::Plan plan = scheduler.plan();
        copy_kv();
        handoff->planned(plan, out);
        if (plan.empty()) return out;
        FakeReplica::Result result;
        model_.start(std::move(plan), scheduler.kv());
        model_.finish(result);
        for (int c = 0; c < cp_; ++c) handoff->layer_done(c, 0);
        auto gained = scheduler.on_result(result.plan, result.advances);
        handoff->sampled(gained);
        out.insert(out.end(), gained.begin(), gained.end());
        return out;
    }

    HeldFabric held;
    schedule::Scheduler scheduler;

  private:
    FakeReplica model_;
    const int cp_, page_size_;
    std::vector<comm::ScopedRegion> regions_;

  public:
    std::unique_ptr<KvHandoff> handoff;  // last: reads and writes the model's pools until it ends
};

// What all worlds have met: a test that never meets it shows nothing.
struct Met {
    double pushed = 0, pulled = 0, computed_again = 0;
    uint64_t retracted = 0;
    int answered = 0, cancelled = 0;
};

class World {
  public:
    World(uint64_t seed, Policy policy, bool breaks = false) : random_(seed), breaks_(breaks) {
        schedule::SchedulerOptions prefill = options(Flavour::kPrefill), decode = options(Flavour::kDecode);
        decode.kv.page_size = prefill.kv.page_size;
        decode.chunked_prefill_size = decode.kv.page_size * random_(1, 6);
        const auto capacity = [](const schedule::SchedulerOptions& o) {
            return int64_t{o.kv.num_blocks - 1} * o.kv.page_size * o.kv.cp;
        };
        longest_ = std::min(capacity(prefill), capacity(decode));
        prefill.max_request_tokens = decode.max_request_tokens = longest_;
        network_ = comm::make_local_network();
        prefill_ = std::make_unique<Replica>(prefill, comm::make_local_fabric(network_, 0, 1));
        decode_ = std::make_unique<Replica>(decode, comm::make_local_fabric(network_, 1, 1));
        connect();
        const double lease_s = random_.chance(50) ? 30 : 0.002;
        prefill_->handoff = make_prefill_handoff(prefill_->scheduler,
                                                  {.replica = 0,
                                                   .fabric = &prefill_->held,
                                                   .decode = {{1, comm::kv_port(true, 0)}},
                                                   .pools = prefill_->pools(),
                                                   .vocab_size = kAnyToken,
                                                   .lease_s = lease_s,
                                                   .notify = [] {},
                                                   .metrics = {registry_, {"m", "prefill", 0}}},
                                                  policy);
        decode_->handoff =
            make_decode_handoff(decode_->scheduler,
                                 {.replica = 0,
                                  .fabric = &decode_->held,
                                  .prefill = {{0, comm::kv_port(false, 0)}},
                                  .pools = decode_->pools(),
                                  .vocab_size = kAnyToken,
                                  .notify = [] {},
                                  .metrics = {registry_, {"m", "decode", 0}}},
                                 [this] { decode_->copy_kv(); });
    }
    ~World() { let_all_go(); }

    void run() {
        const TimePoint limit = after(120);
        while (next_id_ <= kRequestsPerWorld || has_work()) {
            if (next_id_ <= kRequestsPerWorld && random_.chance(40)) arrive();
            if (random_.chance(4)) cancel(random_(1, static_cast<int>(next_id_)));
            if (random_.chance(20)) hold_or_let_go();
            if (breaks_ && random_.chance(1)) break_off();
            if (random_.chance(20)) connect();
            receive(prefill_->round());
            receive(decode_->round());
            if (::testing::Test::HasFailure()) return;
            ASSERT_LT(Clock::now(), limit) << describe();
            if (random_.chance(30)) std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        for (const auto& [id, client] : clients_) {
            ASSERT_TRUE(client.ended()) << "request " << id;
            ASSERT_NO_FATAL_FAILURE(client.check(longest_)) << "request " << id;
        }
        for (Replica* replica : {prefill_.get(), decode_.get()}) {
            EXPECT_EQ(replica->scheduler.counts().used_tokens, 0);
        }
    }

    void add_to(Met& met) const {
        double attempts = 0;
        for (const auto& family : registry_.collect()) {
            for (const auto& sample : family.samples) {
                if (family.name == "sglang:ae_sep_active_transfer_count") met.pushed += sample.value;
                if (family.name == "sglang:ae_sep_passive_transfer_count") met.pulled += sample.value;
                if (family.name == "sglang:ae_sep_kv_policy_total") attempts += sample.value;
            }
        }
        met.computed_again += std::max(attempts - static_cast<double>(clients_.size()), 0.0);
        met.retracted += decode_->scheduler.counts().num_retracted;
        for (const auto& [id, client] : clients_) ++(client.aborted ? met.cancelled : met.answered);
    }

  private:
    schedule::SchedulerOptions options(Flavour flavour) {
        auto options = schedule::random_options(random_, flavour);
        options.num_drafts = 0;
        options.prefix_cache = random_.chance(60);
        return options;
    }

    void arrive() {
        Request request = schedule::random_request(random_, next_id_++, longest_);
        conversations_.begin_like_another(random_, request, longest_);
        if (static_cast<int64_t>(request.prompt.size()) + 1 > longest_) return;
        clients_[request.id].request = request;
        // Either side may hear of it first, and of the other side before it.
        Replica* first = random_.chance(50) ? prefill_.get() : decode_.get();
        first->handoff->add(request);
        if (random_.chance(30)) receive(first->round());
        (first == prefill_.get() ? decode_ : prefill_)->handoff->add(request);
    }

    void cancel(RequestId id) {
        const auto it = clients_.find(id);
        if (it == clients_.end() || it->second.ended()) return;
        it->second.aborted = true;
        Replica* first = random_.chance(50) ? prefill_.get() : decode_.get();
        first->handoff->abort(id);
        if (random_.chance(50)) receive(first->round());
        (first == prefill_.get() ? decode_ : prefill_)->handoff->abort(id);
    }

    void receive(const std::vector<TokenOut>& out) {
        for (const TokenOut& token : out) {
            Client& client = clients_.at(token.id);
            if (client.aborted) continue;
            if (breaks_ && token.finish == FinishReason::kAbort) {  // the client hears of the loss
                client.aborted = true;
                continue;
            }
            ASSERT_NE(token.finish, FinishReason::kAbort) << token.id << ": " << token.error;
            ASSERT_NO_FATAL_FAILURE(client.receive(token));
            if (client.ended()) conversations_.add(client.request.prompt, client.output);
        }
    }

    void hold_or_let_go() {
        HeldFabric& fabric = (random_.chance(50) ? prefill_ : decode_)->held;
        if (random_.chance(30)) return random_.chance(50) ? fabric.hold_copies() : fabric.let_copies_go();
        const auto body = static_cast<HeldFabric::Body>(random_(1, 9));
        random_.chance(50) ? fabric.hold(body) : fabric.release(body);
    }
    // What is under way is lost; the two lives go on, and connect again.
    void break_off() {
        prefill_->held.lose_all();
        decode_->held.lose_all();
        prefill_->held.disconnect(1, prefill_->held.peer_connection(1));
    }
    void connect() { CHECK(prefill_->held.set_peer(1, 1, decode_->held.address()).ok()); }
    void let_all_go() {
        for (Replica* replica : {prefill_.get(), decode_.get()}) {
            for (int body = 1; body <= 9; ++body) replica->held.release(static_cast<HeldFabric::Body>(body));
            replica->held.let_copies_go();
        }
    }

    bool has_work() {
        if (prefill_->scheduler.idle() && decode_->scheduler.idle()) return false;
        if (next_id_ > kRequestsPerWorld && random_.chance(10)) let_all_go();
        return true;
    }

    std::string describe() const {
        std::string text = "no end:";
        for (const Replica* replica : {prefill_.get(), decode_.get()}) {
            const auto counts = replica->scheduler.counts();
            text += fmt::format(" [running {} waiting {} queued {} offered {} prefilled {} used {} of {}]",
                                counts.num_running, counts.num_waiting, counts.num_queued, counts.num_offered,
                                counts.num_prefilled, counts.used_tokens, counts.capacity);
        }
        for (const auto& [id, client] : clients_) {
            if (!client.ended()) text += fmt::format(" {}", id);
        }
        return text;
    }

    metrics::Registry registry_;
    Random random_;
    const bool breaks_;
    int64_t longest_ = 0;
    std::shared_ptr<comm::LocalNetwork> network_;
    std::unique_ptr<Replica> prefill_, decode_;
    std::map<RequestId, Client> clients_;
    schedule::Conversations conversations_;
    RequestId next_id_ = 1;
};

class HandoffProperty : public testing::TestWithParam<Policy> {};

TEST_P(HandoffProperty, EveryAnswerIsRightAndNothingIsLeft) {
    Met met;
    for (uint64_t seed = 0; seed < kNumWorlds && !HasFailure(); ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        World world(seed, GetParam());
        world.run();
        world.add_to(met);
    }
    EXPECT_GT(met.answered, kNumWorlds * kRequestsPerWorld / 2);
    EXPECT_GT(met.cancelled, kNumWorlds);
    EXPECT_GT(met.retracted, 0u);
    if (GetParam() == Policy::kPassive) {
        EXPECT_GT(met.computed_again, 0);
    }
    EXPECT_EQ(met.pushed > 0, GetParam() != Policy::kPassive);
    EXPECT_EQ(met.pulled > 0, GetParam() != Policy::kActive);
}

TEST_P(HandoffProperty, EveryRequestEndsThoughConnectionsBreak) {
    Met met;
    for (uint64_t seed = 0; seed < kNumWorlds && !HasFailure(); ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        World world(seed, GetParam(), true);
        world.run();
        world.add_to(met);
    }
    EXPECT_GT(met.answered, kNumWorlds * kRequestsPerWorld / 4);
    EXPECT_GT(met.cancelled, kNumWorlds);
}

// What the test rests on: a step that reads KV which is not there is seen, in the first worlds in
// which runs are longer than a block.
TEST(HandoffPropertyTest, AShiftedRunIsSeen) {
    planted_fault = static_cast<int>(Fault::kKvRunShifted);
    testing::TestPartResultArray failures;
    {
        testing::ScopedFakeTestPartResultReporter reporter(
            testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
        for (uint64_t seed = 0; seed < 8 && failures.size() == 0; ++seed)
            World(seed, Policy::kActive).run();
    }
    planted_fault = 0;
    EXPECT_GT(failures.size(), 0);
}
std::string name_of(const testing::TestParamInfo<Policy>& info) {
    constexpr const char* kNames[] = {"active", "passive", "active_passive"};
    return kNames[static_cast<int>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Mode, HandoffProperty,
                         testing::Values(Policy::kActive, Policy::kPassive, Policy::kActivePassive), name_of);

}  // namespace
}  // namespace aerie::engine
