// ReplicaChoice: which prefill and which decode replica a prompt goes to.
//
// The rule. Of each role's live replicas the prompt goes to the one with the least
//
//     work that it already has  +  tokens of this prompt that its prefix cache does not hold
//
// in tokens: what would have to be done before the prompt's first token is out. So a replica that
// holds a prefix of c tokens more than another wins until it has c tokens of work more, not for ever.
// Of equals wins the one of which the fewest pages are known, so that unlike prompts spread over all
// caches; then the one that was chosen longest ago.
//
// The work of a prompt is counted where it was sent. On a prefill replica: its uncached tokens, until
// its first token has come. On a decode replica: its uncached tokens, which it takes from the pool,
// and what each choice is expected to say (max_new_tokens, at most 512: what decode keeps room for),
// until the choice's stream has ended. Where one replica does both, the latter.
//
// The choices (n) of one prompt go to the same replicas, so that its KV is computed once.
//
// The replicas' caches cannot be seen from here. A PrefixIndex a replica stands in for each: pages of
// what was sent to it, and on decode replicas of what it has said. It forgets all when the replica's
// host begins a new life, or when the caches are flushed. Wrong guesses cost time only.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "control/engine_client.h"
#include "frontend/prefix_index.h"

namespace aerie::frontend {

struct ReplicaChoiceOptions {
    int page_size = 64;  // tokens
    // Remembered of each replica at most: what its KV pool holds. 0: it has no prefix cache. With the
    // 100 bytes of a page this bounds the memory: 1.6 MB a replica for 1 M tokens in pages of 64.
    int64_t max_pages = 0;
};

// Any thread.
class ReplicaChoice {
  public:
    explicit ReplicaChoice(const ReplicaChoiceOptions& options) : options_(options) {}

    // Where a prompt is, and the work that each of its choices adds there.
    struct Placed {
        int prefill = 0, decode = 0;
        int64_t prefill_work = 0, decode_work = 0;  // tokens
        bool prefilling = false;                    // prefill_work is still counted
    };
    // Places a prompt of num_choices choices. The error names the role that no live replica has.
    Result<Placed> take(const control::EngineState& state, const PageChain& prompt, int num_choices,
                        int max_new_tokens);
    // A choice's first token has come.
    void prefilled(Placed& placed);
    // Each choice once, when it has ended. text: the prompt and what was said.
    void release(Placed& placed, const PageChain& text);
    // The replicas' caches were flushed.
    void forget_prefixes();

    int page_size() const { return options_.page_size; }

  private:
    struct Replica {
        explicit Replica(int64_t max_pages) : index(max_pages) {}
        int64_t work = 0;       // tokens
        uint64_t chosen = 0;    // the number of the take() that chose it last
        uint32_t epoch = 0;     // of the life that the index is about
        PrefixIndex index;
    };
    using Replicas = std::map<int, Replica>;  // by number

    struct Best {
        int replica = -1;      // none is live
        int64_t uncached = 0;  // tokens of the prompt
    };
    // All with the lock held.
    Replica& of(Replicas& replicas, int replica);
    void add(Replica& replica, int64_t work, const PageChain& prompt);
    Best best(const std::vector<control::ReplicaState>& states, Replicas& replicas,
              const PageChain& prompt);

    const ReplicaChoiceOptions options_;
    std::mutex mutex_;
    uint64_t num_taken_ = 0;
    Replicas prefill_, decode_;  // replicas that do both are in decode_ alone
};

}  // namespace aerie::frontend
