// Drafting: the passes of the MTP layer that end a step. The first one gives the layer what it lacks
// of each sequence that the step has computed: its KV of the prompt's chunk, and of the tokens that
// were gained. Where more tokens are wanted, its last row drafts the next one, and each further pass
// one more, from what it has drafted itself. Leader thread.
//
// Drafts never change a token (the next step checks them all); what a slot lacks, after a request
// that ended or behind a cached prefix, may only make drafts worse. Slot j is made of token j and of
// the hidden row before it (model/step.h), so that a page of slots never depends on tokens behind it, and
// is shared and moved with the main layers' pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/step_rows.h"
#include "engine/team.h"
#include "sample/sampler.h"
#include "schedule/plan.h"

namespace aerie::engine {

struct DraftingOptions {
    bool enabled = false;  // the ranks have the MTP layer
    int num_steps = 0;     // the most drafts of a request; 0: a prefill replica, which only keeps KV
    schedule::DraftCost cost;
};

class Drafting {
  public:
    // team and sampler outlive it. microbatches: as in LeaderOptions.
    Drafting(const DraftingOptions& options, int cp, int microbatches, Team& team,
             sample::Sampler& sampler);

    // What the step has done of one entry, before the scheduler is told; in the order of its rows.
    // first_row: among the step's. gained: empty where nothing is sampled; lives until run() ends.
    // ends: the last of them ends the sequence.
    void add(const schedule::PlanEntry& entry, int first_row, std::span<const int32_t> gained,
             bool ends);
    // Runs the passes for what was added since the last run, and leaves Sequence::drafts and
    // mtp_hidden as the next step wants them. After an error nothing is drafted, and slots are lacking.
    Status run(Phase phase, const std::function<void(int, int)>& layer_done);

  private:
    struct Entry {
        schedule::Sequence* sequence;
        std::span<const int32_t> gained;
        int position;      // of the newest token
        int num_wanted;    // drafts: at most as many as leave one token to the check
        int row = -1;      // of the last pass, whose logits predict the next token
    };
    void add_prefill(const schedule::PlanEntry& entry, int first_row);
    void add_decode(const schedule::PlanEntry& entry, int first_row, std::span<const int32_t> gained,
                    bool ends);
    int32_t given(std::string& hidden);
    Status pass(Phase phase, const std::function<void(int, int)>& layer_done);
    void keep_hidden();
    void sample_drafts();
    void add_drafted(int pass);

    const DraftingOptions options_;
    const int microbatches_;
    Team& team_;
    sample::Sampler& sampler_;
    StepRows rows_;
    std::vector<int32_t> hidden_of_;      // [rows]
    std::vector<std::byte> given_;        // rows of hidden state that come from earlier steps
    int num_given_ = 0;
    std::vector<Entry> entries_;          // that go on being drafted for
    std::vector<std::pair<schedule::Sequence*, int>> kept_;  // whose hidden row of the step is kept
    std::vector<int32_t> history_;        // output of one sequence, with what is drafted
};

}  // namespace aerie::engine
