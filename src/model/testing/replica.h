// TestReplica: all ranks of one attention replica with their experts, in this process, with the block
// tables that an engine would keep. Each call of step() is one step of all ranks on threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "model/attention_rank.h"
#include "model/testing/direct_experts.h"

namespace aerie::model {

// The weights of a model for any split, kept between replicas of one test.
class TestModel {
  public:
    // folder: "" makes dummy weights of `config`.
    static Result<std::unique_ptr<TestModel>> load(const std::string& folder,
                                                   const WeightOptions& options);
    static std::unique_ptr<TestModel> dummy(const ModelConfig& config, const WeightOptions& options,
                                            uint64_t seed);

    ModelConfig config;
    std::unique_ptr<WeightStore> store;
    std::unique_ptr<kernels::RopeTable> rope;
};

struct ReplicaOptions {
    int tp_size = 1;
    int cp_size = 1;
    int ep_size = 1;
    int page_size = 64;
    int64_t max_rows = 512;
    int64_t tile_rows = 256;
    bool mtp = false;     // with the MTP layer
    bool expand = false;  // prefill that is not absorbed, where it is cheaper
    int64_t max_positions = 8192;  // of all sequences together
    int64_t max_logits_rows = 512;
    int num_threads = 1;  // of each rank
    // With a model whose weights are there; on the card one rank, whose tiles are whole steps.
    Device device = Device::kCpu;
    std::vector<int64_t> graph_rows;  // of the card, as AttentionRankOptions has them
    bool deterministic = true;        // likewise
    bool scatter_blocks = true;  // blocks of a sequence lie in no order
    StepProfile* profile = nullptr;  // of rank 0
};

// Rows of one sequence in a step.
struct StepPart {
    int sequence = 0;
    int64_t num_tokens = 0;  // the next ones of that sequence
    bool all_logits = false;  // else of the last row only
};

class TestReplica {
  public:
    static Result<std::unique_ptr<TestReplica>> create(TestModel& model, const ReplicaOptions& options);

    // A new sequence with these tokens, none of them computed; returns its number.
    int add_sequence(std::vector<int32_t> tokens);
    void append(int sequence, int32_t token) { sequences_[sequence].tokens.push_back(token); }

    // For benchmarks: as if the first `num_tokens` were computed, with whatever KV is there.
    void skip(int sequence, int64_t num_tokens) { sequences_[sequence].num_computed = num_tokens; }
    void rewind(int sequence) { skip(sequence, 0); }
    // Makes it so long, with tokens 0 behind those it has.
    void extend(int sequence, int64_t num_tokens) {
        sequences_[sequence].tokens.resize(static_cast<size_t>(num_tokens), 0);
    }

    // Computes the next tokens of each part. cuts: rows where a further microbatch begins. draws: as
    // StepInput has them.
    Status step(const std::vector<StepPart>& parts, const std::vector<int64_t>& cuts = {},
                std::span<const kernels::DrawParams> draws = {});
    // The MTP layer's slots of the rows of the last step(), with that step's hidden rows: of the row
    // before, or, where that was in an earlier step, what was kept of it. Logits as step() made them.
    Status draft(const std::vector<int64_t>& cuts = {});
    // After draft(), any number of times: one more slot behind each part's last, for the token that it
    // was drafted to be, with the MTP layer's own hidden row. Logits of each.
    Status draft_on(const std::vector<int32_t>& tokens);

    // Prefill of all that is left of the sequence in chunks of at most `chunk` rows. The logits of all
    // computed rows are appended to `logits` [rows · vocab].
    Status prefill(int sequence, int64_t chunk, bool all_logits, std::vector<float>& logits,
                   const std::vector<int64_t>& cuts = {});

    ConstView logits() const { return ranks_[0]->logits(); }
    AttentionRank& rank(int index) { return *ranks_[index]; }
    DirectExperts& experts(int index) { return *experts_[index]; }
    KvPool& pool(int cp) { return *pools_[cp]; }
    std::span<const int32_t> blocks(int sequence, int cp) const {
        return sequences_[sequence].blocks[cp];
    }
    comm::Group& group() { return *group_; }
    void set_observer(int index, LayerObserver* observer) { observers_[index] = observer; }

  private:
    // A part of a pass through the model or the MTP layer.
    struct Part {
        int sequence = 0;
        int64_t first_row = 0;
        int64_t num_rows = 0;
        int64_t first_position = 0;
        bool all_logits = false;
    };
    // What a StepInput points to.
    struct Rows {
        std::vector<int32_t> tokens, logits_rows;
        std::vector<SequenceSlice> slices;
        std::vector<int64_t> microbatch_begin = {0};
    };
    struct Sequence {
        std::vector<int32_t> tokens;
        int64_t num_computed = 0;
        std::vector<std::vector<int32_t>> blocks;            // [cp]
        std::vector<std::span<const int32_t>> block_tables;  // [cp]
        std::vector<std::byte> last_hidden;  // of the last position that draft() has seen
    };

    TestReplica(TestModel& model, const ReplicaOptions& options)
        : model_(model), options_(options) {}
    Status load_weights(Stream& stream);
    Status make_ranks();
    exchange::AttentionSide* experts_of_rank();  // of the last stream
    void reserve_blocks(Sequence& sequence, int64_t positions);
    void add_rows(Rows& rows, const Part& part, std::span<const int32_t> tokens);
    void cut(Rows& rows, const std::vector<int64_t>& cuts) const;
    static StepInput input_of(const Rows& rows);
    Status run_ranks(const std::function<Status(AttentionRank&, LayerObserver*)>& pass);

    TestModel& model_;
    ReplicaOptions options_;
    std::unique_ptr<ThreadPool> threads_;
    std::vector<std::unique_ptr<Stream>> streams_;             // [rank]
    std::vector<std::unique_ptr<AttentionWeights>> weights_;  // [tp]
    std::vector<std::unique_ptr<RoutedExperts>> expert_ranks_;  // [ep]
    std::vector<std::unique_ptr<KvPool>> pools_;               // [cp]
    std::unique_ptr<comm::Group> group_;
    std::vector<std::unique_ptr<DirectExperts>> experts_;      // [rank]
    std::unique_ptr<exchange::AttentionSide> card_side_;       // the card's in their place
    std::vector<std::unique_ptr<AttentionRank>> ranks_;
    std::vector<LayerObserver*> observers_;
    std::vector<Sequence> sequences_;
    std::vector<Part> last_parts_;     // of the last pass
    std::vector<int32_t> next_block_;  // [cp]
};

}  // namespace aerie::model
