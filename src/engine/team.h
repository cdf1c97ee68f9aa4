// Team: the ranks of one attention replica, a thread each; the leader's thread is rank 0. All run the
// same step; what they compute together goes through their comm::Group.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "cache/prefix_cache.h"
#include "comm/group.h"
#include "exchange/attention_side.h"
#include "metrics/components.h"
#include "model/attention_rank.h"
#include "tensor/kv_file.h"

namespace aerie::engine {

class Team {
  public:
    struct Rank {
        model::RankPlaceInReplica place;
        std::unique_ptr<Stream> stream;
        std::unique_ptr<exchange::AttentionSide> exchange;
        std::unique_ptr<model::AttentionRank> model;  // uses the two above
        metrics::ExpertMetrics experts;  // of a card, whose experts the rank's stream computes
        // Of the cp rank, shared by its tp ranks; tp 0 copies between them.
        KvPool* pool = nullptr;
        KvPool* host_pool = nullptr;  // these may be null where nothing is copied
        KvFile* file = nullptr;
    };
    // ranks: by RankPlaceInReplica::index(). The leader's times go to `metrics`.
    Team(std::string name, std::vector<Rank> ranks, std::unique_ptr<comm::Group> group,
         metrics::AttentionMetrics metrics);
    ~Team();  // ends the threads

    // Leader thread. Runs a step on all ranks. layer_done(cp_rank, layer) is called on the thread of
    // each cp rank's tp 0 when all microbatches of a layer are through; launched(), where ranks are
    // on a card, on the leader's while the card computes. After an error the team is whole again: the
    // next step may run.
    Status forward(const model::StepInput& step, const std::function<void(int, int)>& layer_done,
                   const std::function<void()>& launched);
    // The same for a pass through the MTP layer (model/attention_rank.h), of which layer_done hears.
    Status draft(const model::DraftInput& input, const std::function<void(int, int)>& layer_done);
    // Leader thread, while no step runs. Each cp rank makes its copies, in their order; all are made
    // when it returns.
    cache::CopiesMade copy(std::span<const cache::KvCopy> copies);
    // Of the last step or draft, valid until the next: f32 [logits_rows, vocab].
    ConstView logits() const { return ranks_.front().model->logits(); }
    // Tokens that a card has drawn for the last step (model/step.h).
    std::span<const kernels::Drawn> drawn() const { return ranks_.front().model->drawn(); }
    bool on_card() const { return ranks_.front().model->on_card(); }
    // On a card: a step is launched as a whole, since nobody is waited for in the middle of it.
    bool launches_steps() const {
        return on_card() && ranks_.front().exchange->stays_in_stream();
    }
    // Of all its rows, what the LM head saw: compute type [rows, hidden]. Empty without MTP.
    ConstView hidden_rows() const { return ranks_.front().model->hidden_rows(); }

  private:
    // A step, or a draft where that is not null, on all ranks.
    Status compute(const model::StepInput& step, const model::DraftInput* draft,
                   const std::function<void(int, int)>& layer_done);
    void run_all();
    void follow(int rank);
    void run(int rank);
    void compute_on(int rank);
    void count_eager(int rank, uint64_t before);
    void copy_on(int rank);

    const std::string name_;
    std::vector<Rank> ranks_;
    std::unique_ptr<comm::Group> group_;
    const metrics::AttentionMetrics metrics_;

    const model::StepInput* step_ = nullptr;    // null: copies_ is to be done
    const model::DraftInput* draft_ = nullptr;  // whose step_ is; null: a step of the main layers
    std::span<const cache::KvCopy> copies_;
    const std::function<void(int, int)>* layer_done_ = nullptr;
    const std::function<void()>* launched_ = nullptr;  // null: nobody wants to hear of it
    Event begin_;                     // one more for each step
    Event ended_;                     // one more for each follower that has ended a step
    uint64_t num_ended_wanted_ = 0;
    std::mutex failure_mutex_;
    std::string failure_;             // of the running step; empty: none
    cache::CopiesMade copies_made_;   // of the running copy()
    std::atomic<bool> stopping_{false};
    std::vector<std::thread> threads_;
};

}  // namespace aerie::engine
