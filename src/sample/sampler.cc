#include "sample/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "kernels/draw_math.h"
#include "sample/on_card.h"
#include "sample/race.h"

namespace aerie::sample {
namespace {

using kernels::ordered;

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Orders candidates: the larger logit, of equal ones the lower id, has the larger key.
uint64_t key_of(float logit, int32_t id) {
    const uint32_t high = static_cast<uint32_t>(ordered(logit)) ^ 0x80000000u;
    return uint64_t{high} << 32 | (0xffffffffu - static_cast<uint32_t>(id));
}
int32_t id_of(uint64_t key) {
    return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(key));
}

}  // namespace

// One row on its way to a token.
struct Sampler::Row {
    std::vector<float> logits;   // [num_ids] as they take part: -infinity is out
    std::vector<float> weights;  // [num_ids] exp((logit - largest) / temperature)
    std::vector<uint64_t> keys;  // candidates, in no order
    std::vector<int32_t> counts;  // [num_ids] in the output; 0 between calls
    float largest = 0;
    int32_t first_largest = 0;
    double inverse_temperature = 1;

    Status load(const float* row, const SamplerOptions& options, const SamplingParams& params,
                std::span<const int32_t> output, std::span<const uint32_t> allowed);
    void copy(const float* row, std::span<const uint32_t> allowed);
    void rule_out_ends(const SamplerOptions& options, const SamplingParams& params);
    void penalize(const SamplingParams& params, std::span<const int32_t> output);
    double gap(int32_t id) const {
        return (static_cast<double>(logits[id]) - largest) * inverse_temperature;
    }
    double weigh();  // fills weights and returns their sum
    void gather_top(size_t k);
    void gather_heavy(double least_sum);
    void cut_mass(double target);
    void cut_min_p(double min_p);
};

void Sampler::Row::copy(const float* row, std::span<const uint32_t> allowed) {
    const size_t n = logits.size();
    for (size_t i = 0; i < n; ++i) logits[i] = row[i] + 0.0f;  // -0 becomes 0
    for (size_t word = 0; word < allowed.size(); ++word) {
        if (allowed[word] == ~uint32_t{0}) continue;
        const size_t end = std::min(n, word * 32 + 32);
        for (size_t i = word * 32; i < end; ++i)
            logits[i] = (allowed[word] >> (i % 32) & 1) != 0 ? logits[i] : kNever;
    }
    if (allowed.empty()) return;
    for (size_t i = std::min(n, allowed.size() * 32); i < n; ++i) logits[i] = kNever;
}

void Sampler::Row::rule_out_ends(const SamplerOptions& options, const SamplingParams& params) {
    for (const auto* ids : {&options.eos_ids, &params.stop_token_ids})
        for (const int32_t id : *ids)
            if (id >= 0 && id < options.num_ids) logits[id] = kNever;
}

Status Sampler::Row::load(const float* row, const SamplerOptions& options,
                          const SamplingParams& params, std::span<const int32_t> output,
                          std::span<const uint32_t> allowed) {
    const int n = options.num_ids;
    copy(row, allowed);
    penalize(params, output);
    if (static_cast<int>(output.size()) < params.min_new_tokens) {
        rule_out_ends(options, params);
        const bool none = std::all_of(logits.begin(), logits.end(),
                                      [](float x) { return x == kNever; });
        if (none && !allowed.empty()) {
            copy(row, allowed);
            penalize(params, output);
        }
    }
    int32_t least = std::numeric_limits<int32_t>::max();
    int32_t most = std::numeric_limits<int32_t>::min();
    for (int i = 0; i < n; ++i) {
        const int32_t value = ordered(logits[i]);
        least = std::min(least, value);
        most = std::max(most, value);
    }
    // NaNs lie beyond the infinities of their sign.
    if (most >= ordered(-kNever) || least < ordered(kNever)) {
        int bad = 0;
        while (logits[bad] < -kNever) ++bad;
        return not_finite(bad, logits[bad]);
    }
    if (most == ordered(kNever)) return none_is_left();
    first_largest = 0;
    while (ordered(logits[first_largest]) != most) ++first_largest;
    largest = logits[first_largest];
    return {};
}

void Sampler::Row::penalize(const SamplingParams& params, std::span<const int32_t> output) {
    const auto is_id = [this](int32_t id) {
        return id >= 0 && static_cast<size_t>(id) < logits.size();
    };
    if (params.frequency_penalty != 0 || params.presence_penalty != 0 ||
        params.repetition_penalty != 1) {
        for (const int32_t id : output)
            if (is_id(id)) ++counts[id];
        for (const int32_t id : output) {
            if (!is_id(id) || counts[id] == 0) continue;
            double x = logits[id];
            x = x > 0 ? x / params.repetition_penalty : x * params.repetition_penalty;
            x -= std::exchange(counts[id], 0) * params.frequency_penalty + params.presence_penalty;
            logits[id] = static_cast<float>(x) + 0.0f;
        }
    }
    for (const LogitBias& bias : params.logit_bias)
        if (is_id(bias.id)) logits[bias.id] = logits[bias.id] + bias.bias + 0.0f;
}

double Sampler::Row::weigh() {
    const auto scale = static_cast<float>(inverse_temperature);
    const size_t n = logits.size();
    const float* x = logits.data();
    float* w = weights.data();
    for (size_t i = 0; i < n; ++i) w[i] = kernels::draw_weight((x[i] - largest) * scale);
    double lanes[8] = {};  // one order of addition, whatever the vector width
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; ++lane) lanes[lane] += w[i + lane];
    for (; i < n; ++i) lanes[0] += w[i];
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    return sum;
}

// keys = the k largest. Keeps a buffer of at least 2k whose smaller half is thrown away when full.
void Sampler::Row::gather_top(size_t k) {
    const size_t limit = std::max<size_t>(2 * k, 1024);
    keys.clear();
    uint64_t bar = key_of(kNever, 0);
    for (size_t i = 0; i < logits.size(); ++i) {
        const uint64_t key = key_of(logits[i], static_cast<int32_t>(i));
        if (key <= bar) continue;
        keys.push_back(key);
        if (keys.size() < limit) continue;
        std::nth_element(keys.begin(), keys.begin() + k - 1, keys.end(), std::greater<>());
        keys.resize(k);
        bar = keys[k - 1];
    }
    if (keys.size() > k) {
        std::nth_element(keys.begin(), keys.begin() + k - 1, keys.end(), std::greater<>());
        keys.resize(k);
    }
}

// keys = all ids above some weight, enough that together they weigh more than `least_sum`.
void Sampler::Row::gather_heavy(double least_sum) {
    for (const float bar : {0x1p-6f, 0x1p-12f, 0x1p-24f, 0.0f}) {
        keys.clear();
        double sum = 0;
        for (size_t i = 0; i < logits.size(); ++i) {
            if (weights[i] < bar || logits[i] == kNever) continue;
            keys.push_back(key_of(logits[i], static_cast<int32_t>(i)));
            sum += weights[i];
        }
        if (sum > least_sum) return;
    }
}

// Keeps, in descending order, those before which at most `target` of weight lies: quickselect by
// weight, so that nothing is sorted but the last few.
void Sampler::Row::cut_mass(double target) {
    size_t begin = 0, end = keys.size();
    double before = 0;
    while (end - begin > 32) {
        const uint64_t a = keys[begin], b = keys[begin + (end - begin) / 2], c = keys[end - 1];
        const uint64_t pivot = std::max(std::min(a, b), std::min(std::max(a, b), c));
        const auto border = std::partition(keys.begin() + begin, keys.begin() + end,
                                           [pivot](uint64_t key) { return key >= pivot; });
        size_t middle = border - keys.begin();
        if (middle == end) {  // the pivot is the smallest: take it off alone
            std::iter_swap(std::find(keys.begin() + begin, keys.begin() + end, pivot),
                           keys.begin() + end - 1);
            --middle;
        }
        double left = 0;
        for (size_t i = begin; i < middle; ++i) left += weights[id_of(keys[i])];
        if (before + left > target) {
            end = middle;
        } else {
            before += left;
            begin = middle;
        }
    }
    std::sort(keys.begin() + begin, keys.begin() + end, std::greater<>());
    size_t kept = begin;
    while (kept < end && before <= target) before += weights[id_of(keys[kept++])];
    keys.resize(std::max<size_t>(kept, 1));
}

void Sampler::Row::cut_min_p(double min_p) {
    const double least = std::log(min_p);
    std::erase_if(keys, [&](uint64_t key) { return gap(id_of(key)) < least; });
}

Sampler::Sampler(const SamplerOptions& options) : options_(options), row_(std::make_unique<Row>()) {
    CHECK(options.num_ids > 0 && options.num_ids <= options.vocab_size, "{} ids, vocabulary {}",
          options.num_ids, options.vocab_size);
    row_->logits.resize(options.num_ids);
    row_->weights.resize(options.num_ids);
    row_->keys.reserve(options.num_ids);
    row_->counts.resize(options.num_ids);
}

Sampler::~Sampler() = default;

Result<int32_t> Sampler::sample(const float* logits, const SamplingParams& params,
                                std::span<const int32_t> output, int64_t position,
                                std::span<const uint32_t> allowed) {
    Row& row = *row_;
    RETURN_IF_ERROR(row.load(logits, options_, params, output, allowed));
    if (is_greedy(params)) return row.first_largest;

    const int n = options_.num_ids;
    row.inverse_temperature = 1 / params.temperature;
    Race race({.seed = params.seed, .choice = params.choice, .position = position},
              row.first_largest);
    const bool by_k = params.top_k > 0 && params.top_k < n;
    const bool by_p = params.top_p < 1;
    const bool by_min_p = params.min_p > 0;
    if (!by_k && !by_p && !by_min_p) {
        for (int32_t id = 0; id < n; ++id) race.enter(id, row.gap(id));
        return race.winner();
    }

    const double sum = by_p ? row.weigh() : 0;
    const double target = by_p ? std::max(params.top_p, 0.0) * sum : 0;
    if (by_k)
        row.gather_top(params.top_k);
    else if (by_p)
        row.gather_heavy(target);
    else
        row.gather_top(n);
    if (by_p) row.cut_mass(target);
    if (by_min_p) row.cut_min_p(std::min(params.min_p, 1.0));
    for (const uint64_t key : row.keys) race.enter(id_of(key), row.gap(id_of(key)));
    return race.winner();
}

TokenLogprobs Sampler::logprobs(const float* logits, const SamplingParams& params,
                                int32_t token) {
    Row& row = *row_;
    for (int i = 0; i < options_.num_ids; ++i) row.logits[i] = logits[i] + 0.0f;
    row.largest = *std::max_element(row.logits.begin(), row.logits.end());
    row.inverse_temperature = 1;
    const double log_sum = std::log(row.weigh());
    const auto logprob = [&](int32_t id) {
        const bool exists = id >= 0 && id < options_.num_ids;
        return exists ? static_cast<float>(row.gap(id) - log_sum) : kNever;
    };
    TokenLogprobs result{.logprob = logprob(token), .top = {}, .asked = {}};
    const int num_top = std::min(params.num_top_logprobs, options_.num_ids);
    if (num_top > 0) {
        row.gather_top(static_cast<size_t>(num_top));
        std::sort(row.keys.begin(), row.keys.end(), std::greater<>());
        for (const uint64_t key : row.keys) result.top.push_back({id_of(key), logprob(id_of(key))});
    }
    for (const int32_t id : params.logprob_ids) result.asked.push_back(logprob(id));
    return result;
}

double gumbel(const NoiseKey& key, int32_t id) {
    return -std::log(-std::log(noise_uniform(noise_bits(noise_base(key), id))));
}

uint64_t hash_logits(const float* logits, int vocab_size) {
    return hash_bytes(logits, sizeof(float) * static_cast<size_t>(vocab_size));
}

}  // namespace aerie::sample
