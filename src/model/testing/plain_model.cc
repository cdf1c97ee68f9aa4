#include "model/testing/plain_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/rope.h"
#include "model/model_support.h"

namespace aerie::model {
namespace {

double element(const TensorBytes& bytes, int64_t i) {
    switch (bytes.dtype) {
        case DType::kF32: return static_cast<const float*>(bytes.data)[i];
        case DType::kBF16: return f32_from_bf16(static_cast<const BF16*>(bytes.data)[i]);
        default: return f32_from_f8e4m3(static_cast<const uint8_t*>(bytes.data)[i]);
    }
}

TensorBytes load(TensorSource& source, const TensorSpec& spec) {
    auto bytes = source.load(spec, 0, spec.rows);
    CHECK(bytes.ok(), "{}", bytes.message());
    return *std::move(bytes);
}

double dot(const double* a, const double* b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
}

void add(std::vector<std::vector<double>>& to, const std::vector<std::vector<double>>& x) {
    for (size_t t = 0; t < to.size(); ++t)
        for (size_t i = 0; i < to[t].size(); ++i) to[t][i] += x[t][i];
}

// The experts of one token with their weights.
std::vector<std::pair<int, double>> choose(const ModelConfig& c, const std::vector<double>& logits,
                                           const std::vector<double>& bias) {
    const int n = c.n_routed_experts, group = n / c.n_group;
    std::vector<double> score(logits), choice;
    if (c.scoring_func == ScoringFunc::kSigmoid) {
        for (double& s : score) s = 1 / (1 + std::exp(-s));
    } else {
        double sum = 0;
        for (double& s : score) sum += s = std::exp(s);
        for (double& s : score) s /= sum;
    }
    choice = score;
    if (c.topk_method == TopkMethod::kNoauxTc)
        for (int e = 0; e < n; ++e) choice[e] += bias[e];
    if (c.topk_method != TopkMethod::kGreedy) {
        std::vector<double> best(c.n_group);
        for (int g = 0; g < c.n_group; ++g) {
            std::vector<double> own(choice.begin() + g * group, choice.begin() + (g + 1) * group);
            std::sort(own.rbegin(), own.rend());
            best[g] = c.topk_method == TopkMethod::kNoauxTc ? own[0] + own[1] : own[0];
        }
        std::vector<int> order(c.n_group);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return best[a] > best[b]; });
        for (int i = c.topk_group; i < c.n_group; ++i)
            for (int e = 0; e < group; ++e) choice[order[i] * group + e] = -INFINITY;
    }
    std::vector<int> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return choice[a] > choice[b]; });
    double sum = 0;
    for (int k = 0; k < c.num_experts_per_tok; ++k) sum += score[order[k]];
    std::vector<std::pair<int, double>> chosen;
    for (int k = 0; k < c.num_experts_per_tok; ++k) {
        const double weight = c.norm_topk_prob ? score[order[k]] / (sum + 1e-20) : score[order[k]];
        chosen.emplace_back(order[k], weight * c.routed_scaling_factor);
    }
    return chosen;
}

}  // namespace

std::vector<double> PlainModel::vector(const std::string& name, int64_t size) {
    const TensorBytes bytes = load(source_, {.name = name, .rows = size});
    std::vector<double> values(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) values[i] = element(bytes, i);
    return values;
}

PlainModel::Rows PlainModel::matrix(const std::string& module, int64_t rows, int64_t cols,
                                    TensorKind kind) {
    const TensorBytes bytes = load(source_, {module + ".weight", kind, rows, cols});
    const int64_t blocks = (cols + 127) / 128;
    TensorBytes scales;
    if (bytes.dtype == DType::kF8E4M3) {
        scales = load(source_, {module + ".weight_scale_inv", TensorKind::kScale, (rows + 127) / 128,
                                blocks});
    }
    Rows w(static_cast<size_t>(rows), std::vector<double>(static_cast<size_t>(cols)));
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
            w[r][c] = element(bytes, r * cols + c);
            if (scales.data != nullptr) w[r][c] *= element(scales, r / 128 * blocks + c / 128);
        }
    }
    return w;
}

PlainModel::Rows PlainModel::linear(const Rows& x, const std::string& module, int64_t rows,
                                    TensorKind kind) {
    const Rows w = matrix(module, rows, static_cast<int64_t>(x[0].size()), kind);
    Rows y(x.size(), std::vector<double>(w.size()));
    for (size_t t = 0; t < x.size(); ++t)
        for (size_t n = 0; n < w.size(); ++n) y[t][n] = dot(x[t].data(), w[n].data(), x[t].size());
    return y;
}

PlainModel::Rows PlainModel::norm(const Rows& x, const std::string& name) {
    const auto weight = vector(name, static_cast<int64_t>(x[0].size()));
    Rows y = x;
    for (auto& row : y) {
        const double mean = dot(row.data(), row.data(), row.size()) / static_cast<double>(row.size());
        const double factor = 1 / std::sqrt(mean + config_.rms_norm_eps);
        for (size_t i = 0; i < row.size(); ++i) row[i] *= factor * weight[i];
    }
    return y;
}

// The frequencies are those of the kernel's table, which its own test compares with the formula.
void PlainModel::rotate(double* pairs, int64_t position) const {
    const kernels::RopeTable table(rope_params(config_), position + 1);
    const float* cs = table.cos_sin(position);
    for (int i = 0; i < config_.qk_rope_head_dim; i += 2) {
        const double a = pairs[i], b = pairs[i + 1];
        pairs[i] = a * cs[i] - b * cs[i + 1];
        pairs[i + 1] = b * cs[i] + a * cs[i + 1];
    }
}

PlainModel::Rows PlainModel::attention(const Rows& x, const std::string& prefix) {
    const ModelConfig& c = config_;
    const int64_t heads = c.num_attention_heads, nope = c.qk_nope_head_dim, v = c.v_head_dim,
                  q_dim = c.qk_head_dim();
    Rows q = c.q_lora_rank > 0
                 ? linear(norm(linear(x, prefix + "q_a_proj", c.q_lora_rank),
                               prefix + "q_a_layernorm.weight"),
                          prefix + "q_b_proj", heads * q_dim)
                 : linear(x, prefix + "q_proj", heads * q_dim);
    Rows latent = linear(x, prefix + "kv_a_proj_with_mqa", c.latent_dim()), k_pe = latent;
    for (auto& row : latent) row.resize(static_cast<size_t>(c.kv_lora_rank));
    const Rows kv = linear(norm(latent, prefix + "kv_a_layernorm.weight"), prefix + "kv_b_proj",
                           heads * (nope + v));
    const auto rope_dim = static_cast<size_t>(c.qk_rope_head_dim);
    Rows out(x.size(), std::vector<double>(static_cast<size_t>(heads * v)));
    for (size_t t = 0; t < x.size(); ++t) {
        double* key_pe = &k_pe[t][c.kv_lora_rank];
        rotate(key_pe, static_cast<int64_t>(t));
        for (int64_t h = 0; h < heads; ++h) {
            double* query = &q[t][h * q_dim];
            rotate(query + nope, static_cast<int64_t>(t));
            std::vector<double> p(t + 1);
            double sum = 0;
            for (size_t s = 0; s <= t; ++s) {
                const double score = dot(query, &kv[s][h * (nope + v)], static_cast<size_t>(nope)) +
                                     dot(query + nope, &k_pe[s][c.kv_lora_rank], rope_dim);
                sum += p[s] = std::exp(score * c.softmax_scale());
            }
            for (size_t s = 0; s <= t; ++s)
                for (int64_t i = 0; i < v; ++i)
                    out[t][h * v + i] += p[s] / sum * kv[s][h * (nope + v) + nope + i];
        }
    }
    return linear(out, prefix + "o_proj", c.hidden_size);
}

PlainModel::Rows PlainModel::mlp(const Rows& x, const std::string& prefix, int64_t inner) {
    Rows gate = linear(x, prefix + "gate_proj", inner);
    const Rows up = linear(x, prefix + "up_proj", inner);
    for (size_t t = 0; t < gate.size(); ++t)
        for (size_t i = 0; i < gate[t].size(); ++i)
            gate[t][i] *= up[t][i] / (1 + std::exp(-gate[t][i]));
    return linear(gate, prefix + "down_proj", static_cast<int64_t>(x[0].size()));
}

PlainModel::Rows PlainModel::experts(const Rows& x, const std::string& prefix) {
    const ModelConfig& c = config_;
    Rows y(x.size(), std::vector<double>(x[0].size()));
    if (c.n_shared_experts > 0)
        y = mlp(x, prefix + "shared_experts.",
                int64_t{c.n_shared_experts} * c.moe_intermediate_size);
    const Rows logits = linear(x, prefix + "gate", c.n_routed_experts, TensorKind::kPlain);
    std::vector<double> bias;
    if (c.topk_method == TopkMethod::kNoauxTc)
        bias = vector(prefix + "gate.e_score_correction_bias", c.n_routed_experts);
    for (size_t t = 0; t < x.size(); ++t) {
        for (const auto& [expert, weight] : choose(c, logits[t], bias)) {
            const Rows out = mlp({x[t]}, fmt::format("{}experts.{}.", prefix, expert),
                                 c.moe_intermediate_size);
            for (size_t i = 0; i < out[0].size(); ++i) y[t][i] += weight * out[0][i];
        }
    }
    return y;
}

PlainModel::Rows PlainModel::embed(const std::vector<int32_t>& tokens) {
    const Rows embedding =
        matrix("model.embed_tokens", config_.vocab_size, config_.hidden_size, TensorKind::kPlain);
    Rows x;
    for (int32_t token : tokens) x.push_back(embedding[token]);
    return x;
}

void PlainModel::layer(Rows& x, int layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    add(x, attention(norm(x, prefix + "input_layernorm.weight"), prefix + "self_attn."));
    const Rows h = norm(x, prefix + "post_attention_layernorm.weight");
    add(x, layer_is_moe(config_, layer) ? experts(h, prefix + "mlp.")
                                        : mlp(h, prefix + "mlp.", config_.intermediate_size));
}

PlainModel::Rows PlainModel::hidden(const std::vector<int32_t>& tokens) {
    Rows x = embed(tokens);
    for (int i = 0; i < config_.num_hidden_layers; ++i) layer(x, i);
    return norm(x, "model.norm.weight");
}

PlainModel::Rows PlainModel::mtp_hidden(const std::vector<int32_t>& tokens, const Rows& h) {
    const std::string prefix = fmt::format("model.layers.{}.", config_.num_hidden_layers);
    Rows joined = norm(embed(tokens), prefix + "enorm.weight");
    const Rows before = norm(h, prefix + "hnorm.weight");
    for (size_t j = 0; j < joined.size(); ++j)
        joined[j].insert(joined[j].end(), before[j].begin(), before[j].end());
    Rows x = linear(joined, prefix + "eh_proj", config_.hidden_size, TensorKind::kPlain);
    layer(x, config_.num_hidden_layers);
    return norm(x, prefix + "shared_head.norm.weight");
}

std::vector<float> PlainModel::logits(const Rows& hidden) {
    const Rows y = linear(hidden, config_.tie_word_embeddings ? "model.embed_tokens" : "lm_head",
                          config_.vocab_size, TensorKind::kPlain);
    std::vector<float> flat;
    for (const auto& row : y) flat.insert(flat.end(), row.begin(), row.end());
    return flat;
}

}  // namespace aerie::model
