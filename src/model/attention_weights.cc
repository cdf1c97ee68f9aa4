#include "model/attention_weights.h"

#include "kernels/attention.h"
#include "model/load_jobs.h"
#include "model/model_support.h"

namespace aerie::model {
namespace {

using kernels::LinearWeight;

// Adds the jobs of one rank. Keys name the tensor and the slice, so that ranks share what is equal.
class Loader {
  public:
    Loader(const ModelConfig& config, const AttentionSlice& slice, WeightStore& store)
        : config_(config), slice_(slice), store_(store), jobs_(store) {}

    void add_model(AttentionWeights& w);
    void add_layer(int layer, LayerWeights& w);
    void add_mtp(MtpWeights& w);
    Status run(Stream& stream) {
        return jobs_.run(stream, fmt::format("attention tp {}/{}", slice_.tp, slice_.tp_size));
    }

  private:
    void add_vector(const Tensor*& into, const std::string& name, int64_t size) {
        jobs_.add(into, name, [this, name, size] { return store_.vector(name, size); });
    }
    void add_linear(const LinearWeight*& into, std::vector<WeightSlice> stacked) {
        std::string key;
        for (const WeightSlice& s : stacked)
            key += fmt::format("{} {}:{} {}:{} ", s.module, s.row_begin, s.row_end, s.col_begin,
                               s.col_end);
        jobs_.add(into, key, [this, stacked = std::move(stacked)] { return store_.pack(stacked); });
    }
    void add_attention(const std::string& prefix, LayerWeights& w);
    void add_ffn(const kernels::ExpertWeights*& into, const std::string& prefix, int64_t inner);

    const ModelConfig& config_;
    const AttentionSlice& slice_;
    WeightStore& store_;
    LoadJobs jobs_;
};

void Loader::add_model(AttentionWeights& w) {
    const int64_t vocab = config_.vocab_size, hidden = config_.hidden_size;
    const std::string embedding = "model.embed_tokens";
    jobs_.add(w.embedding, embedding, [this, embedding, vocab, hidden] {
        return store_.table(embedding + ".weight", vocab, hidden);
    });
    add_vector(w.final_norm, "model.norm.weight", hidden);
    // The key differs from the embedding's where they are tied: one is a table, one is packed.
    add_linear(w.lm_head, {{.module = config_.tie_word_embeddings ? embedding : "lm_head",
                            .rows = vocab,
                            .cols = hidden,
                            .kind = TensorKind::kPlain,
                            .row_begin = w.vocab.begin,
                            .row_end = w.vocab.end}});
}

void Loader::add_layer(int layer, LayerWeights& w) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    const int64_t hidden = config_.hidden_size;
    add_vector(w.input_norm, prefix + "input_layernorm.weight", hidden);
    add_vector(w.post_attention_norm, prefix + "post_attention_layernorm.weight", hidden);
    add_attention(prefix + "self_attn.", w);
    w.is_moe = layer_is_moe(config_, layer);
    if (!w.is_moe) {
        add_ffn(w.dense, prefix + "mlp.", config_.intermediate_size);
        return;
    }
    add_linear(w.gate, {{.module = prefix + "mlp.gate",
                         .rows = config_.n_routed_experts,
                         .cols = hidden,
                         .kind = TensorKind::kPlain}});
    if (config_.topk_method == TopkMethod::kNoauxTc) {
        add_vector(w.gate_bias, prefix + "mlp.gate.e_score_correction_bias",
                   config_.n_routed_experts);
    }
    if (config_.n_shared_experts > 0) {
        // Several shared experts are stored, and computed, as one of their summed width.
        add_ffn(w.shared, prefix + "mlp.shared_experts.",
                int64_t{config_.n_shared_experts} * config_.moe_intermediate_size);
    }
}

void Loader::add_attention(const std::string& prefix, LayerWeights& w) {
    const int64_t hidden = config_.hidden_size, q_lora = config_.q_lora_rank;
    const Range heads = share_of(config_.num_attention_heads, slice_.tp_size, slice_.tp);
    std::vector<WeightSlice> down;
    if (q_lora > 0) down.push_back({.module = prefix + "q_a_proj", .rows = q_lora, .cols = hidden});
    down.push_back(
        {.module = prefix + "kv_a_proj_with_mqa", .rows = config_.latent_dim(), .cols = hidden});
    add_linear(w.q_a_kv_a, std::move(down));
    if (q_lora > 0) add_vector(w.q_a_norm, prefix + "q_a_layernorm.weight", q_lora);
    add_vector(w.kv_a_norm, prefix + "kv_a_layernorm.weight", config_.kv_lora_rank);

    const int64_t q_dim = config_.qk_head_dim(), v_dim = config_.v_head_dim;
    add_linear(w.q_b, {{.module = prefix + (q_lora > 0 ? "q_b_proj" : "q_proj"),
                        .rows = config_.num_attention_heads * q_dim,
                        .cols = q_lora > 0 ? q_lora : hidden,
                        .row_begin = heads.begin * q_dim,
                        .row_end = heads.end * q_dim}});
    const KvHeadSlice kv{.module = prefix + "kv_b_proj",
                         .num_heads = config_.num_attention_heads,
                         .head_begin = heads.begin,
                         .head_end = heads.end,
                         .nope = config_.qk_nope_head_dim,
                         .v = v_dim,
                         .latent = config_.kv_lora_rank,
                         .expanding = slice_.can_expand};
    jobs_.add(w.kv_heads,
              fmt::format("{} heads {}:{}{}", kv.module, heads.begin, heads.end,
                          slice_.can_expand ? ", expanding" : ""),
              [this, kv] { return store_.pack_kv_heads(kv); });
    add_linear(w.o, {{.module = prefix + "o_proj",
                      .rows = hidden,
                      .cols = config_.num_attention_heads * v_dim,
                      .col_begin = heads.begin * v_dim,
                      .col_end = heads.end * v_dim}});
}

void Loader::add_ffn(const kernels::ExpertWeights*& into, const std::string& prefix, int64_t inner) {
    jobs_.add(into, prefix + "ffn", [this, prefix, inner] {
        return load_ffn(store_, prefix, config_.hidden_size, inner);
    });
}

void Loader::add_mtp(MtpWeights& w) {
    const std::string prefix = fmt::format("model.layers.{}.", config_.num_hidden_layers);
    const int64_t hidden = config_.hidden_size;
    add_vector(w.embed_norm, prefix + "enorm.weight", hidden);
    add_vector(w.hidden_norm, prefix + "hnorm.weight", hidden);
    add_vector(w.shared_head_norm, prefix + "shared_head.norm.weight", hidden);
    add_linear(w.eh_proj, {{.module = prefix + "eh_proj",
                            .rows = hidden,
                            .cols = 2 * hidden,
                            .kind = TensorKind::kPlain}});
}

}  // namespace

Result<AttentionWeights> load_attention_weights(const ModelConfig& config,
                                                const AttentionSlice& wanted, WeightStore& store,
                                                Stream& stream) {
    AttentionSlice slice = wanted;
    const bool on_card = store.options().device == Device::kCuda;
    if (on_card && !kernels::MlaStep::expands(config.qk_nope_head_dim, config.v_head_dim))
        slice.can_expand = false;
    RETURN_IF_ERROR(check_supported(config));
    if (slice.tp_size < 1 || config.num_attention_heads % slice.tp_size != 0) {
        return error("num_attention_heads {} is not divisible by attention_tp {}",
                     config.num_attention_heads, slice.tp_size);
    }
    if (slice.with_mtp && config.num_nextn_predict_layers < 1)
        return error("num_nextn_predict_layers: found 0: the model has no MTP layer");
    CHECK(0 <= slice.tp && slice.tp < slice.tp_size, "tp {} of {}", slice.tp, slice.tp_size);
    if (slice.can_expand && !on_card && (config.qk_head_dim() % 32 != 0 || config.v_head_dim % 32 != 0)) {
        return error("enable_deterministic_inference: found false with heads of {} and v_head_dim {} in "
                     "config.json, expected multiples of 32 there or true",
                     config.qk_head_dim(), config.v_head_dim);
    }

    AttentionWeights w;
    w.tp = slice.tp;
    w.tp_size = slice.tp_size;
    w.has_mtp = slice.with_mtp;
    w.can_expand = slice.can_expand;
    w.num_heads = config.num_attention_heads / slice.tp_size;
    w.vocab = share_of(config.vocab_size, slice.tp_size, slice.tp);
    w.layers.resize(static_cast<size_t>(config.num_hidden_layers + (slice.with_mtp ? 1 : 0)));
    Loader loader(config, slice, store);
    loader.add_model(w);
    for (size_t layer = 0; layer < w.layers.size(); ++layer)
        loader.add_layer(static_cast<int>(layer), w.layers[layer]);
    if (slice.with_mtp) loader.add_mtp(w.mtp);
    RETURN_IF_ERROR(loader.run(stream));
    return w;
}

}  // namespace aerie::model
