// Sampler: a row of logits → a token.
//
// token = argmax over the kept ids of logit/temperature + gumbel(seed, choice, position, id), which
// draws from softmax(logit/temperature) restricted to the kept ids. The noise belongs to the id,
// not to its rank among the kept: filters do not move it, and an MTP draft that draws with the same
// key as the check agrees as often as the two distributions allow.
//
// Before that each logit x of a token that the output holds `count` times already becomes
//   (x > 0 ? x / repetition_penalty : x · repetition_penalty)
//       − count · frequency_penalty − presence_penalty,
// and logit_bias is added. The prompt does not count. What a mask rules out is -infinity before that.
//
// Kept are the ids that pass all of these, each judged on the whole softmax(logit/temperature), as
// SGLang does:  top_k: the k most probable;  top_p: those before which less than top_p, or exactly
// that, has accumulated in descending order;  min_p: at least min_p times the most probable. Equal
// logits are in the order of their ids. The most probable id always stays. What accumulates for top_p
// is in steps of 2^-34 of the largest, so that it has no order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "request/request.h"
#include "sample/noise.h"

namespace aerie::sample {

struct SamplerOptions {
    int vocab_size = 0;  // length of a row
    int num_ids = 0;     // tokens of the tokenizer: ids from here on are never sampled
    std::vector<int32_t> eos_ids;
};

// One thread at a time; keeps its scratch, so that sampling does not allocate.
class Sampler {
  public:
    explicit Sampler(const SamplerOptions& options);
    ~Sampler();

    // logits: [vocab_size], f32; -infinity rules an id out. output: the tokens that the request has
    // gained before this one; below min_new_tokens eos and stop ids are not sampled. position: of
    // the drawn token in the sequence. A temperature below 1e-6 takes the largest logit, of several
    // the lowest id. An error where a logit is NaN or +infinity, or where no id is left.
    //
    // allowed: bit i mod 32 of word i / 32 is id i's, what it does not reach is not allowed;
    // empty: all are. Where it
    // leaves only ids that min_new_tokens rules out, these are sampled all the same.
    Result<int32_t> sample(const float* logits, const SamplingParams& params,
                           std::span<const int32_t> output, int64_t position,
                           std::span<const uint32_t> allowed = {});

    // Of the token drawn from these logits, with params.num_top_logprobs >= 0. Among the ids below
    // num_ids; of equal ones the lower id comes first.
    TokenLogprobs logprobs(const float* logits, const SamplingParams& params, int32_t token);

  private:
    struct Row;

    SamplerOptions options_;
    std::unique_ptr<Row> row_;
};

// A 64-bit hash of a row's bits, [vocab_size] f32: the test hook by which results are compared.
uint64_t hash_logits(const float* logits, int vocab_size);

}  // namespace aerie::sample
