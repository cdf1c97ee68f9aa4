// Both sides of the exchange over local fabrics: node 0 holds attention ranks, nodes 1 and 2 a copy
// of the experts each.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

#include "comm/port_numbers.h"
#include "exchange/attention_side.h"
#include "exchange/expert_side.h"
#include "exchange/layout.h"
#include "tensor/tensor.h"

namespace aerie::exchange {
namespace {

constexpr int kHidden = 16;
constexpr int kExperts = 8;
constexpr int kTopk = 3;
constexpr int kMaxRows = 32;
const std::vector<int> kExpertBegin = {0, 3, 6, 8};  // ep 3: the first two hold one more

// Answers with out[r] = Σ weight · (expert + 1) · x[r], which the test computes by itself.
class FakeExperts {
  public:
    FakeExperts(std::shared_ptr<comm::LocalNetwork> network, int node, uint32_t epoch, int copy,
                int num_attention_ranks)
        : fabric_(comm::make_local_fabric(std::move(network), node, epoch)) {
        for (int r = 0; r < 3; ++r) {
            ExpertSideOptions options;
            options.expert_rank = copy * 3 + r;
            options.ep_rank = r;
            options.num_experts = kExpertBegin[r + 1] - kExpertBegin[r];
            options.fabric = fabric_.get();
            options.compute = DType::kF32;
            options.hidden = kHidden;
            options.topk = kTopk;
            options.max_rows = kMaxRows;
            for (int a = 0; a < num_attention_ranks; ++a) {
                options.attention_ranks.push_back({0, comm::attention_port(a)});
            }
            sides_.push_back(make_expert_side(options));
        }
    }
    ~FakeExperts() { stop(); }

    void run() {
        for (size_t r = 0; r < sides_.size(); ++r) {
            threads_.emplace_back([this, r] {
                while (!stopping_) {
                    if (!sides_[r]->wait(after(0.05))) continue;
                    step(static_cast<int>(r));
                }
            });
        }
    }
    void stop() {
        stopping_ = true;
        for (auto& side : sides_) side->wake();
        for (auto& thread : threads_) thread.join();
        threads_.clear();
    }
    // One group of expert rank r; returns how many microbatches it held.
    size_t step(int r) {
        const auto group = sides_[r]->take();
        for (const Waiting& waiting : group) {
            View out = sides_[r]->output(waiting);
            for (int64_t i = 0; i < out.rows; ++i) {
                float factor = 0;
                for (int c = waiting.offsets[i]; c < waiting.offsets[i + 1]; ++c) {
                    factor += waiting.choices[c].weight *
                              static_cast<float>(kExpertBegin[r] + waiting.choices[c].expert + 1);
                }
                for (int h = 0; h < kHidden; ++h) {
                    out.row_as<float>(i)[h] = factor * waiting.hidden.row_as<float>(i)[h];
                }
            }
            rows_ += static_cast<int>(out.rows);
            std::lock_guard lock(layers_mutex_);
            layers_.push_back(waiting.layer);
        }
        for (const Waiting& waiting : group) sides_[r]->reply(waiting);
        return group.size();
    }

    ExpertSide& side(int r) { return *sides_[r]; }
    comm::Fabric& fabric() { return *fabric_; }
    int rows() const { return rows_; }
    const std::vector<int>& layers() const { return layers_; }

  private:
    std::unique_ptr<comm::Fabric> fabric_;
    std::vector<std::unique_ptr<ExpertSide>> sides_;
    std::vector<std::thread> threads_;
    std::atomic<bool> stopping_{false};
    std::atomic<int> rows_{0};
    std::mutex layers_mutex_;
    std::vector<int> layers_;  // read where no thread runs
};

struct Rows {
    Tensor hidden{DType::kF32, kMaxRows, kHidden};
    std::vector<int32_t> ids;
    std::vector<float> weights;
    int rows = 0;

    explicit Rows(int n, int seed) : rows(n) {
        for (int i = 0; i < n; ++i) {
            for (int h = 0; h < kHidden; ++h) hidden.data<float>()[i * kHidden + h] = std::sin(seed + i * 3 + h);
            for (int k = 0; k < kTopk; ++k) {
                ids.push_back((seed + i + k * 3) % kExperts);
                weights.push_back(0.5f + 0.25f * static_cast<float>(k));
            }
        }
    }
    Dispatch dispatch(int slot, int layer, Phase phase = Phase::kDecode) {
        return {slot, layer, phase, hidden.first_rows(rows), ids.data(), weights.data(), kTopk};
    }
    void expect(ConstView sum) const {
        for (int i = 0; i < rows; ++i) {
            float factor = 0;
            for (int k = 0; k < kTopk; ++k) factor += weights[i * kTopk + k] * (ids[i * kTopk + k] + 1.0f);
            for (int h = 0; h < kHidden; ++h) {
                ASSERT_NEAR(sum.row_as<float>(i)[h], 1 + factor * hidden.data<float>()[i * kHidden + h], 1e-4)
                    << "row " << i;
            }
        }
    }
};

Tensor ones(int rows) {
    Tensor sum(DType::kF32, rows, kHidden);
    for (int i = 0; i < rows * kHidden; ++i) sum.data<float>()[i] = 1;
    return sum;
}

class ExchangeTest : public testing::Test {
  protected:
    ExchangeTest() {
        network_ = comm::make_local_network();
        attention_fabric_ = comm::make_local_fabric(network_, 0, 1);
    }
    AttentionSideOptions options(int rank, double timeout_s = 20) {
        AttentionSideOptions o;
        o.attention_rank = rank;
        o.fabric = attention_fabric_.get();
        o.compute = DType::kF32;
        o.hidden = kHidden;
        o.topk = kTopk;
        o.max_rows = kMaxRows;
        o.expert_begin = kExpertBegin;
        for (int copy = 0; copy < 2; ++copy) {
            auto& destinations = o.copies.emplace_back();
            for (int r = 0; r < 3; ++r) destinations.push_back({1 + copy, comm::expert_port(copy * 3 + r)});
        }
        o.timeout_s = timeout_s;
        return o;
    }
    std::unique_ptr<FakeExperts> experts(int copy, uint32_t epoch = 1) {
        auto made = std::make_unique<FakeExperts>(network_, 1 + copy, epoch, copy, 2);
        EXPECT_TRUE(made->fabric().set_peer(0, 1, attention_fabric_->address()).ok());
        EXPECT_TRUE(attention_fabric_->set_peer(1 + copy, epoch, made->fabric().address()).ok());
        return made;
    }

    std::shared_ptr<comm::LocalNetwork> network_;
    std::unique_ptr<comm::Fabric> attention_fabric_;
};

TEST_F(ExchangeTest, RowsComeBackInOrderFromEveryRank) {
    auto side = make_attention_side(options(0));
    auto copy = experts(0);
    copy->run();
    for (int n : {1, 2, 7, kMaxRows}) {
        for (int layer = 0; layer < 3; ++layer) {
            Rows a(n, n), b(n, n + 5);
            ASSERT_TRUE(side->dispatch(a.dispatch(0, layer)).ok());
            ASSERT_TRUE(side->dispatch(b.dispatch(2, layer, Phase::kPrefill)).ok());
            Tensor sum_a = ones(n), sum_b = ones(n);
            ASSERT_TRUE(side->combine(2, sum_b.view()).ok());
            ASSERT_TRUE(side->combine(0, sum_a.view()).ok());
            a.expect(sum_a.view());
            b.expect(sum_b.view());
        }
    }
}

TEST_F(ExchangeTest, NoRowsSendNothing) {
    auto side = make_attention_side(options(0));
    auto copy = experts(0);
    Rows none(0, 0);
    ASSERT_TRUE(side->dispatch(none.dispatch(1, 0)).ok());
    Tensor sum = ones(1);
    ASSERT_TRUE(side->combine(1, sum.first_rows(0)).ok());
    EXPECT_EQ(copy->rows(), 0);
}

TEST_F(ExchangeTest, OneLayerOfSeveralRanksIsComputedTogether) {
    auto first = make_attention_side(options(0)), second = make_attention_side(options(1));
    auto copy = experts(0);
    Rows a(4, 0), b(5, 1), c(6, 2);
    ASSERT_TRUE(first->dispatch(a.dispatch(0, 7)).ok());
    ASSERT_TRUE(second->dispatch(b.dispatch(0, 7)).ok());
    ASSERT_TRUE(second->dispatch(c.dispatch(1, 8)).ok());
    EXPECT_EQ(copy->step(0), 2u);
    EXPECT_EQ(copy->step(0), 1u);
    EXPECT_EQ(copy->step(0), 0u);
    EXPECT_EQ(copy->layers(), (std::vector<int>{7, 7, 8}));
}

TEST_F(ExchangeTest, DecodeGoesBeforePrefillUntilPrefillHasWaited) {
    auto side = make_attention_side(options(0));
    auto copy = experts(0);
    Rows prefill(4, 0), decode(4, 0);
    ASSERT_TRUE(side->dispatch(prefill.dispatch(0, 1, Phase::kPrefill)).ok());
    ASSERT_TRUE(side->dispatch(decode.dispatch(1, 2, Phase::kDecode)).ok());
    copy->step(0);
    EXPECT_EQ(copy->layers(), (std::vector<int>{2}));  // younger, but decode
    copy->step(0);
    Rows again(4, 0), late(4, 0);
    auto other = make_attention_side(options(1));
    ASSERT_TRUE(other->dispatch(again.dispatch(0, 3, Phase::kPrefill)).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(40));  // twice the limit
    ASSERT_TRUE(other->dispatch(late.dispatch(1, 4, Phase::kDecode)).ok());
    copy->step(0);
    EXPECT_EQ(copy->layers(), (std::vector<int>{2, 1, 3}));
}

TEST_F(ExchangeTest, AnotherCopyTakesOverWhenAHostDies) {
    auto side = make_attention_side(options(0));
    auto first = experts(0), second = experts(1);
    second->run();
    Rows rows(9, 3);
    ASSERT_TRUE(side->dispatch(rows.dispatch(0, 0)).ok());  // to the first, which never answers
    std::thread killer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        attention_fabric_->drop_peer(1, 1);
    });
    Tensor sum = ones(9);
    ASSERT_TRUE(side->combine(0, sum.view()).ok());
    killer.join();
    rows.expect(sum.view());
    EXPECT_GT(second->rows(), 0);
}

TEST_F(ExchangeTest, TheSameHostIsAskedAgainWhenItIsBack) {
    auto side = make_attention_side(options(0));
    auto life = experts(0, 1);
    Rows rows(9, 3);
    ASSERT_TRUE(side->dispatch(rows.dispatch(0, 0)).ok());
    std::unique_ptr<FakeExperts> next;
    std::thread killer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        attention_fabric_->drop_peer(1, 1);
        life.reset();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        next = experts(0, 2);
        next->run();
    });
    Tensor sum = ones(9);
    ASSERT_TRUE(side->combine(0, sum.view()).ok());
    killer.join();
    rows.expect(sum.view());
}

TEST_F(ExchangeTest, DispatchBeforeAnyExpertHostIsThereWaitsForIt) {
    auto side = make_attention_side(options(0));
    Rows rows(3, 1);
    ASSERT_TRUE(side->dispatch(rows.dispatch(0, 0)).ok());
    std::unique_ptr<FakeExperts> copy;
    std::thread starter([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        copy = experts(0);
        copy->run();
    });
    Tensor sum = ones(3);
    ASSERT_TRUE(side->combine(0, sum.view()).ok());
    starter.join();
    rows.expect(sum.view());
}

TEST_F(ExchangeTest, WhoAlwaysFindsWorkToHelpWithTimesOutToo) {
    AttentionSideOptions busy = options(0, 0.05);
    busy.help = [] { return true; };
    auto side = make_attention_side(std::move(busy));
    Rows rows(2, 0);
    ASSERT_TRUE(side->dispatch(rows.dispatch(0, 0)).ok());
    Tensor sum = ones(2);
    EXPECT_FALSE(side->combine(0, sum.view()).ok());
}

TEST_F(ExchangeTest, ATimeoutNamesWhoWaitedForWhom) {
    auto side = make_attention_side(options(0, 0.05));
    auto copy = experts(0);  // never answers
    Rows rows(2, 0);         // experts 0, 3, 6 and 1, 4, 7: every rank
    ASSERT_TRUE(side->dispatch(rows.dispatch(1, 5)).ok());
    Tensor sum = ones(2);
    const Status status = side->combine(1, sum.view());
    ASSERT_FALSE(status.ok());
    for (const char* part : {"attention rank 0 on node-0 waited", "layer 5, microbatch 1", "ep rank 0 (node-1)",
                             "ep rank 2 (node-1)"}) {
        EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    }
    // The late answer is dropped, and the slot works again.
    side->reset();
    copy->run();
    Rows again(2, 4);
    ASSERT_TRUE(side->dispatch(again.dispatch(1, 6)).ok());
    Tensor fresh = ones(2);
    ASSERT_TRUE(side->combine(1, fresh.view()).ok());
    again.expect(fresh.view());
}

TEST_F(ExchangeTest, ABadMessageIsDroppedAndHarmsNobody) {
    auto side = make_attention_side(options(0));
    auto copy = experts(0);
    DispatchHeader header{.attention_rank = 0, .slot = 0, .sequence = 1, .layer = 0, .phase = 1,
                          .rows = 1, .num_choices = 1};
    const DispatchLayout layout{kHidden * sizeof(float), kTopk};
    std::vector<std::byte> payload(layout.bytes(1, 1));
    auto send = [&](const DispatchHeader& h) {
        (void)attention_fabric_->send({1, comm::expert_port(0)},
                                      {.header = &h, .header_bytes = sizeof(h), .payload = payload.data(),
                                       .payload_bytes = payload.size(), .kind = comm::Payload::kLent});
    };
    for (auto change : std::initializer_list<void (*)(DispatchHeader&)>{
             [](DispatchHeader& h) { h.attention_rank = 99; }, [](DispatchHeader& h) { h.slot = -1; },
             [](DispatchHeader& h) { h.rows = kMaxRows + 1; }, [](DispatchHeader& h) { h.rows = 0; },
             [](DispatchHeader& h) { h.num_choices = 1000; }}) {
        DispatchHeader bad = header;
        change(bad);
        send(bad);
    }
    // An expert that the rank does not hold.
    reinterpret_cast<int32_t*>(payload.data() + layout.offsets_at(1))[1] = 1;
    reinterpret_cast<kernels::ExpertChoice*>(payload.data() + layout.choices_at(1))->expert = 3;
    send(header);
    EXPECT_EQ(copy->step(0), 0u);
    copy->run();
    Rows rows(3, 1);
    ASSERT_TRUE(side->dispatch(rows.dispatch(0, 0)).ok());
    Tensor sum = ones(3);
    ASSERT_TRUE(side->combine(0, sum.view()).ok());
    rows.expect(sum.view());
}

}  // namespace
}  // namespace aerie::exchange
