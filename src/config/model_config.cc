#include "config/model_config.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/json.h"

namespace aerie {
namespace {

// Reads fields of one JSON object and turns every wrong one into an error.
class Fields {
  public:
    Fields(const Json& object, std::string where, std::vector<std::string>& errors)
        : object_(object), where_(std::move(where)), errors_(errors) {}

    bool has(const char* key) const { return !object_[key].is_null(); }
    const Json& raw(const char* key) const { return object_[key]; }

    template <typename Number>
    void number(const char* key, Number& into, double min, double max) {
        if (has(key)) {
            read_number(key, into, min, max);
        } else if (object_.find(key)) {
            fail(key, "null", "a number");
        }
    }
    template <typename Number>
    void required(const char* key, Number& into, double min, double max) {
        has(key) ? read_number(key, into, min, max) : fail(key, "nothing", "a number");
    }
    void flag(const char* key, bool& into) {
        if (!has(key)) return;
        raw(key).is_bool() ? void(into = raw(key).as_bool())
                           : fail(key, raw(key).dump(), "true or false");
    }
    std::string text(const char* key, const char* fallback) {
        if (!has(key)) return fallback;
        if (raw(key).is_string()) return raw(key).as_string();
        fail(key, raw(key).dump(), "a string");
        return fallback;
    }
    // The index of the string in `words`, or -1 with an error.
    int choice(const char* key, const std::string& value, const std::vector<const char*>& words) {
        for (size_t i = 0; i < words.size(); ++i) {
            if (value == words[i]) return static_cast<int>(i);
        }
        std::string all;
        for (const char* word : words) all += (all.empty() ? "" : ", ") + std::string(word);
        fail(key, '"' + value + '"', "supported: " + all);
        return -1;
    }
    void fail(const std::string& key, const std::string& found, const std::string& expected) {
        errors_.push_back(
            fmt::format("{}: {}: found {}, expected {}", where_, key, found, expected));
    }

  private:
    template <typename Number>
    void read_number(const char* key, Number& into, double min, double max) {
        const Json& value = raw(key);
        const bool whole =
            !std::is_integral_v<Number> ||
            (value.is_number() && value.as_double() == std::floor(value.as_double()));
        if (!value.is_number() || !whole ||
            !(value.as_double() >= min && value.as_double() <= max)) {
            const char* kind = std::is_integral_v<Number> ? "a whole number" : "a number";
            fail(key, value.dump(), fmt::format("{} from {} to {}", kind, min, max));
            return;
        }
        into = static_cast<Number>(value.as_double());
    }

    const Json& object_;
    std::string where_;
    std::vector<std::string>& errors_;
};

constexpr double kBig = 1e9;

void read_sizes(Fields& fields, ModelConfig& m) {
    fields.required("vocab_size", m.vocab_size, 1, kBig);
    fields.required("hidden_size", m.hidden_size, 1, kBig);
    fields.required("intermediate_size", m.intermediate_size, 1, kBig);
    fields.required("moe_intermediate_size", m.moe_intermediate_size, 1, kBig);
    fields.required("num_hidden_layers", m.num_hidden_layers, 1, 10000);
    fields.number("first_k_dense_replace", m.first_k_dense_replace, 0, 10000);
    fields.number("moe_layer_freq", m.moe_layer_freq, 1, 1);
    fields.number("num_nextn_predict_layers", m.num_nextn_predict_layers, 0, 1);
    fields.required("max_position_embeddings", m.max_position_embeddings, 1, kBig);
    fields.required("rms_norm_eps", m.rms_norm_eps, 0, 1);
    fields.required("num_attention_heads", m.num_attention_heads, 1, 65536);
    if (fields.has("q_lora_rank")) fields.number("q_lora_rank", m.q_lora_rank, 1, kBig);
    fields.required("kv_lora_rank", m.kv_lora_rank, 1, kBig);
    fields.required("qk_nope_head_dim", m.qk_nope_head_dim, 1, kBig);
    fields.required("qk_rope_head_dim", m.qk_rope_head_dim, 2, kBig);
    fields.required("v_head_dim", m.v_head_dim, 1, kBig);
    if (m.qk_rope_head_dim % 2 != 0) {
        fields.fail("qk_rope_head_dim", std::to_string(m.qk_rope_head_dim), "an even number");
    }
    if (m.first_k_dense_replace > m.num_hidden_layers && m.num_hidden_layers > 0) {
        fields.fail("first_k_dense_replace", std::to_string(m.first_k_dense_replace),
                    fmt::format("at most num_hidden_layers = {}", m.num_hidden_layers));
    }
}

void read_gate(Fields& fields, ModelConfig& m) {
    fields.required("n_routed_experts", m.n_routed_experts, 1, 65536);
    fields.required("num_experts_per_tok", m.num_experts_per_tok, 1, 64);
    if (fields.has("n_shared_experts"))
        fields.number("n_shared_experts", m.n_shared_experts, 0, 64);
    if (fields.has("n_group")) fields.number("n_group", m.n_group, 1, 65536);
    if (fields.has("topk_group")) fields.number("topk_group", m.topk_group, 1, 65536);
    fields.flag("norm_topk_prob", m.norm_topk_prob);
    fields.number("routed_scaling_factor", m.routed_scaling_factor, 1e-9, 1e9);
    // The reference implementation's defaults where the file is silent.
    const bool v2 = m.model_type == "deepseek_v2";
    const int scoring =
        fields.choice("scoring_func", fields.text("scoring_func", v2 ? "softmax" : "sigmoid"),
                      {"sigmoid", "softmax"});
    if (scoring >= 0) m.scoring_func = static_cast<ScoringFunc>(scoring);
    const int method =
        fields.choice("topk_method", fields.text("topk_method", v2 ? "greedy" : "noaux_tc"),
                      {"noaux_tc", "group_limited_greedy", "greedy"});
    if (method >= 0) m.topk_method = static_cast<TopkMethod>(method);
    if (scoring == 1 && method == 0) {
        fields.fail("topk_method", "\"noaux_tc\" with scoring_func \"softmax\"",
                    "noaux_tc with sigmoid, or greedy or group_limited_greedy with softmax");
    }
    if (scoring == 0 && method > 0) {
        fields.fail("topk_method", "a greedy method with scoring_func \"sigmoid\"", "noaux_tc");
    }
    if (m.topk_method == TopkMethod::kGreedy) m.n_group = m.topk_group = 1;
    if (m.n_routed_experts % m.n_group != 0) {
        fields.fail("n_group", std::to_string(m.n_group),
                    fmt::format("a divisor of n_routed_experts = {}", m.n_routed_experts));
    } else if (m.topk_group > m.n_group) {
        fields.fail("topk_group", std::to_string(m.topk_group),
                    fmt::format("at most n_group = {}", m.n_group));
    } else if (m.n_routed_experts > 0 &&
               m.num_experts_per_tok > m.n_routed_experts / m.n_group * m.topk_group) {
        fields.fail("num_experts_per_tok", std::to_string(m.num_experts_per_tok),
                    fmt::format("at most the {} experts of topk_group groups",
                                m.n_routed_experts / m.n_group * m.topk_group));
    } else if (method == 0 && m.n_group > 1 && m.n_routed_experts / m.n_group < 2) {
        fields.fail("n_group", std::to_string(m.n_group), "groups of at least 2 experts");
    }
}

void read_rope(Fields& fields, const std::string& where, std::vector<std::string>& errors,
               ModelConfig& m) {
    fields.number("rope_theta", m.rope_theta, 1, 1e12);
    if (!fields.has("rope_scaling")) return;
    const Json& scaling = fields.raw("rope_scaling");
    if (!scaling.is_object()) {
        fields.fail("rope_scaling", scaling.type_name(), "null or an object");
        return;
    }
    Fields inner(scaling, where + ": rope_scaling", errors);
    const std::string type =
        inner.has("type") ? inner.text("type", "") : inner.text("rope_type", "");
    if (type == "default") return;
    if (type != "yarn") {
        fields.fail("rope_scaling.type", '"' + type + '"', "supported: yarn");
        return;
    }
    YarnScaling yarn;
    inner.required("factor", yarn.factor, 1, 1e6);
    inner.required("original_max_position_embeddings", yarn.original_max_position_embeddings, 1,
                   kBig);
    inner.number("beta_fast", yarn.beta_fast, 1e-6, 1e6);
    inner.number("beta_slow", yarn.beta_slow, 1e-6, 1e6);
    inner.number("mscale", yarn.mscale, 0, 1e6);
    inner.number("mscale_all_dim", yarn.mscale_all_dim, 0, 1e6);
    m.rope_scaling = yarn;
}

void read_quantization(Fields& fields, const std::string& where, std::vector<std::string>& errors,
                       ModelConfig& m) {
    if (!fields.has("quantization_config")) return;
    const Json& object = fields.raw("quantization_config");
    if (!object.is_object()) {
        fields.fail("quantization_config", object.type_name(), "null or an object");
        return;
    }
    Fields inner(object, where + ": quantization_config", errors);
    inner.choice("quant_method", inner.text("quant_method", ""), {"fp8"});
    inner.choice("fmt", inner.text("fmt", "e4m3"), {"e4m3"});
    inner.choice("activation_scheme", inner.text("activation_scheme", "dynamic"), {"dynamic"});
    Fp8Quantization quant;
    const Json& block = inner.raw("weight_block_size");
    if (block != Json(Json::Array{128, 128})) {
        inner.fail("weight_block_size", block.is_null() ? "nothing" : block.dump(), "[128, 128]");
    }
    if (inner.has("scale_fmt")) {
        quant.scale_ue8m0 =
            inner.choice("scale_fmt", inner.text("scale_fmt", ""), {"float", "ue8m0"}) == 1;
    }
    for (const char* key : {"modules_to_not_convert", "ignored_layers"}) {
        if (!inner.has(key)) continue;
        if (!inner.raw(key).is_array()) {
            inner.fail(key, inner.raw(key).dump(), "a list of names");
            continue;
        }
        for (const Json& name : inner.raw(key).as_array()) {
            name.is_string() ? quant.modules_to_not_convert.push_back(name.as_string())
                             : inner.fail(key, name.dump(), "names");
        }
    }
    m.quantization_config = std::move(quant);
}

// Fields whose other values would change the arithmetic.
void refuse_unsupported(Fields& fields, ModelConfig& m) {
    fields.choice("hidden_act", fields.text("hidden_act", "silu"), {"silu"});
    bool attention_bias = false;
    fields.flag("attention_bias", attention_bias);
    if (attention_bias) fields.fail("attention_bias", "true", "false: biases are not supported");
    fields.flag("tie_word_embeddings", m.tie_word_embeddings);
    const char* dtype_key =
        fields.has("dtype") && !fields.has("torch_dtype") ? "dtype" : "torch_dtype";
    m.torch_dtype = fields.text(dtype_key, "bfloat16");
    fields.choice(dtype_key, m.torch_dtype, {"bfloat16", "float32", "float16"});
    if (fields.has("index_topk")) {
        fields.fail("index_topk", fields.raw("index_topk").dump(),
                    "nothing: sparse attention (DeepSeek-V3.2) is not supported");
    }
}

void read_ids(Fields& fields, const char* key, std::set<int>& into) {
    if (!fields.has(key)) return;
    const Json& value = fields.raw(key);
    const Json::Array list = value.is_array() ? value.as_array() : Json::Array{value};
    for (const Json& id : list) {
        id.is_int() && id.as_int() >= 0 && id.as_int() <= std::numeric_limits<int>::max()
            ? void(into.insert(static_cast<int>(id.as_int())))
            : fields.fail(key, value.dump(), "a token id or a list of them");
    }
}

void read_optional_id(Fields& fields, const char* key, std::optional<int>& into) {
    std::set<int> ids;
    read_ids(fields, key, ids);
    if (!ids.empty()) into = *ids.begin();
}

void read_generation(const std::string& path, std::vector<std::string>& errors, std::set<int>& eos,
                     GenerationDefaults& into) {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) return;  // optional
    auto json = read_json_file(path);
    if (!json) return errors.push_back(json.message());
    Fields fields(*json, path, errors);
    read_ids(fields, "eos_token_id", eos);
    const auto read = [&](const char* key, auto& field, double min, double max) {
        if (!fields.has(key)) return;
        std::remove_reference_t<decltype(*field)> value{};
        fields.required(key, value, min, max);
        field = value;
    };
    read("temperature", into.temperature, 0, 1e6);
    read("top_p", into.top_p, 0, 1);
    read("min_p", into.min_p, 0, 1);
    read("top_k", into.top_k, -1, kBig);
    read("repetition_penalty", into.repetition_penalty, 1e-6, 1e6);
}

// A file that says it is of another class is not taken for one of ours because its fields fit.
void check_class(Fields& fields, ModelConfig& m) {
    const Json& names = fields.raw("architectures");
    if (names.is_array()) {
        for (const Json& name : names.as_array()) {
            if (name.is_string()) m.architectures.push_back(name.as_string());
        }
    }
    const auto ours = [](const std::string& name) {
        return name.starts_with("DeepseekV2") || name.starts_with("DeepseekV3") ||
               name.starts_with("Kimi");
    };
    if (!m.architectures.empty() && std::none_of(m.architectures.begin(), m.architectures.end(), ours)) {
        fields.fail("architectures", names.dump(),
                    "a class of DeepSeek-V3's architecture, such as DeepseekV3ForCausalLM");
    }
}

void check_ids(Fields& fields, const ModelConfig& m, const char* key, const std::set<int>& ids) {
    if (!ids.empty() && *ids.rbegin() >= m.vocab_size) {
        fields.fail(key, std::to_string(*ids.rbegin()),
                    fmt::format("token ids below vocab_size = {}", m.vocab_size));
    }
}

// Multimodal wrappers of the class hold the language model's fields in text_config, what is common
// to all parts beside it.
Json language_model_of(const Json& file) {
    if (!file["text_config"].is_object()) return file;
    Json object = file["text_config"];
    for (const auto& [key, value] : file.as_object()) {
        if (key != "text_config" && object[key].is_null()) object.set(key, value);
    }
    return object;
}

}  // namespace

int ModelConfig::num_moe_layers() const {
    int count = 0;
    for (int layer = 0; layer < num_hidden_layers; ++layer) count += is_moe(layer);
    return count;
}

double ModelConfig::softmax_scale() const {
    double scale = 1 / std::sqrt(static_cast<double>(qk_head_dim()));
    if (rope_scaling && rope_scaling->mscale_all_dim > 0) {
        const double m = 0.1 * rope_scaling->mscale_all_dim * std::log(rope_scaling->factor) + 1;
        scale *= m * m;
    }
    return scale;
}

ModelConfig read_model_config(const std::string& folder, std::vector<std::string>& errors) {
    ModelConfig m;
    const std::string path = folder + "/config.json";
    auto json = read_json_file(path);
    if (!json) {
        errors.push_back(json.message());
        return m;
    }
    if (!json->is_object()) {
        errors.push_back(fmt::format("{}: found {}, expected an object", path, json->type_name()));
        return m;
    }
    const Json object = language_model_of(*json);
    Fields fields(object, path, errors);
    m.model_type = fields.text("model_type", "");
    check_class(fields, m);
    if (!fields.has("kv_lora_rank") || !fields.has("n_routed_experts")) {
        fields.fail(fields.has("kv_lora_rank") ? "n_routed_experts" : "kv_lora_rank",
                    fmt::format("nothing (model_type \"{}\")", m.model_type),
                    "a model of DeepSeek-V3's class: latent attention and routed experts");
        return m;
    }
    read_sizes(fields, m);
    read_gate(fields, m);
    read_rope(fields, path, errors, m);
    read_quantization(fields, path, errors, m);
    refuse_unsupported(fields, m);
    read_optional_id(fields, "bos_token_id", m.bos_token_id);
    read_optional_id(fields, "pad_token_id", m.pad_token_id);
    std::set<int> eos;
    read_ids(fields, "eos_token_id", eos);
    read_generation(folder + "/generation_config.json", errors, eos, m.generation);
    if (m.vocab_size > 0) check_ids(fields, m, "eos_token_id", eos);
    m.eos_token_ids.assign(eos.begin(), eos.end());
    return m;
}

}  // namespace aerie
