#include "tokenizer/tokenizer_file.h"

#include <sys/stat.h>

#include <initializer_list>

#include "base/log.h"
#include "tokenizer/byte_level.h"

namespace aerie {
namespace {

// GPT-2's pattern, which ByteLevel applies where use_regex is true.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string shown(const Json& value) {
    std::string text = value.dump();
    return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

Error unsupported(const std::string& field, const Json& value, const char* expected) {
    return error("{}: {} is not supported, expected {}", field, shown(value), expected);
}

// "type" of a component, or an empty string.
std::string type_of(const Json& component) {
    const Json& type = component["type"];
    return type.is_string() ? type.as_string() : "";
}

Result<bool> read_bool(const Json& object, const char* key, const std::string& field, bool absent) {
    const Json* value = object.find(key);
    if (!value || value->is_null()) return absent;
    if (!value->is_bool()) return unsupported(field + "." + key, *value, "true or false");
    return value->as_bool();
}

// Every field of the list must be absent, null, false, 0 or "".
Status require_unset(const Json& object, const std::string& field,
                     std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
        const Json& value = object[key];
        const bool unset = value.is_null() || value == Json(false) || value == Json("") ||
                           (value.is_number() && value.as_double() == 0);
        if (!unset) return unsupported(field + "." + key, value, "null or its absence");
    }
    return {};
}

Status read_added_tokens(const Json& root, TokenizerFile& file) {
    const Json& list = root["added_tokens"];
    if (list.is_null()) return {};
    if (!list.is_array()) return unsupported("added_tokens", list, "a list");
    for (size_t i = 0; i < list.as_array().size(); ++i) {
        const Json& item = list.as_array()[i];
        const std::string field = fmt::format("added_tokens[{}]", i);
        if (!item["id"].is_int() || item["id"].as_int() < 0 || item["id"].as_int() > 1 << 28) {
            return unsupported(field + ".id", item["id"], "a token id");
        }
        if (!item["content"].is_string() || item["content"].as_string().empty()) {
            return unsupported(field + ".content", item["content"], "a text that is not empty");
        }
        RETURN_IF_ERROR(require_unset(item, field, {"single_word"}));
        AddedToken token;
        token.id = static_cast<int32_t>(item["id"].as_int());
        token.content = item["content"].as_string();
        const std::pair<const char*, bool*> flags[] = {{"special", &token.special},
                                                       {"normalized", &token.normalized},
                                                       {"lstrip", &token.lstrip},
                                                       {"rstrip", &token.rstrip}};
        for (const auto& [key, flag] : flags) {
            auto value = read_bool(item, key, field, false);
            if (!value) return value.error();
            *flag = *value;
        }
        file.added_tokens.push_back(std::move(token));
    }
    return {};
}

Status read_normalizer(const Json& normalizer, const std::string& field) {
    if (normalizer.is_null()) return {};
    if (type_of(normalizer) != "Sequence") return unsupported(field, normalizer, "null");
    const Json& parts = normalizer["normalizers"];
    if (!parts.is_array()) return unsupported(field + ".normalizers", parts, "a list");
    for (size_t i = 0; i < parts.as_array().size(); ++i) {
        RETURN_IF_ERROR(read_normalizer(parts.as_array()[i],
                                        fmt::format("{}.normalizers[{}]", field, i)));
    }
    return {};
}

Status read_split(const Json& split, const std::string& field, TokenizerFile& file) {
    SplitStep step;
    const Json& pattern = split["pattern"];
    if (pattern["Regex"].is_string()) {
        step.pattern = pattern["Regex"].as_string();
    } else if (pattern["String"].is_string()) {
        step.pattern = pattern["String"].as_string();
        step.is_regex = false;
    }
    if (step.pattern.empty()) {
        return unsupported(field + ".pattern", pattern, "{\"Regex\": …} or {\"String\": …}");
    }
    using Behavior = SplitStep::Behavior;
    const std::pair<const char*, Behavior> behaviors[] = {
        {"Removed", Behavior::kRemoved},
        {"Isolated", Behavior::kIsolated},
        {"MergedWithPrevious", Behavior::kMergedWithPrevious},
        {"MergedWithNext", Behavior::kMergedWithNext},
        {"Contiguous", Behavior::kContiguous}};
    bool found = false;
    for (const auto& [name, behavior] : behaviors) {
        if (split["behavior"] == Json(name)) {
            step.behavior = behavior;
            found = true;
        }
    }
    if (!found) {
        return unsupported(field + ".behavior", split["behavior"],
                           "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
    }
    auto invert = read_bool(split, "invert", field, false);
    if (!invert) return invert.error();
    step.invert = *invert;
    file.split_steps.push_back(std::move(step));
    return {};
}

Status read_digits(const Json& digits, const std::string& field, TokenizerFile& file) {
    auto individual = read_bool(digits, "individual_digits", field, false);
    if (!individual) return individual.error();
    SplitStep step;
    step.pattern = "\\p{N}";  // the library asks Rust's char::is_numeric: Nd, Nl and No
    step.behavior = *individual ? SplitStep::Behavior::kIsolated : SplitStep::Behavior::kContiguous;
    file.split_steps.push_back(std::move(step));
    return {};
}

Status read_pre_tokenizer(const Json& part, const std::string& field, TokenizerFile& file,
                          bool& byte_level) {
    const std::string type = type_of(part);
    if (byte_level) return unsupported(field, part, "nothing after ByteLevel");
    if (type == "Sequence") {
        const Json& parts = part["pretokenizers"];
        if (!parts.is_array()) return unsupported(field + ".pretokenizers", parts, "a list");
        for (size_t i = 0; i < parts.as_array().size(); ++i) {
            RETURN_IF_ERROR(read_pre_tokenizer(parts.as_array()[i],
                                               fmt::format("{}.pretokenizers[{}]", field, i), file,
                                               byte_level));
        }
        return {};
    }
    if (type == "Split") return read_split(part, field, file);
    if (type == "Digits") return read_digits(part, field, file);
    if (type == "ByteLevel") {
        auto prefix_space = read_bool(part, "add_prefix_space", field, true);
        if (!prefix_space) return prefix_space.error();
        if (*prefix_space) return unsupported(field + ".add_prefix_space", Json(true), "false");
        auto use_regex = read_bool(part, "use_regex", field, true);
        if (!use_regex) return use_regex.error();
        if (*use_regex) {
            SplitStep step;
            step.pattern = kByteLevelPattern;
            file.split_steps.push_back(std::move(step));
        }
        byte_level = true;
        return {};
    }
    return unsupported(field, part, "Sequence, Split, Digits or ByteLevel");
}

Status read_template_processing(const Json& processor, const std::string& field,
                                TokenizerFile& file) {
    const Json& single = processor["single"];
    if (!single.is_array()) return unsupported(field + ".single", single, "a list");
    bool seen_text = false;
    for (size_t i = 0; i < single.as_array().size(); ++i) {
        const Json& item = single.as_array()[i];
        if (item.find("Sequence")) {
            seen_text = true;
        } else if (item["SpecialToken"]["id"].is_string()) {
            (seen_text ? file.tokens_after : file.tokens_before)
                .push_back(item["SpecialToken"]["id"].as_string());
        } else {
            return unsupported(fmt::format("{}.single[{}]", field, i), item,
                               "a SpecialToken or a Sequence");
        }
    }
    return {};
}

Status read_post_processor(const Json& part, const std::string& field, TokenizerFile& file,
                           bool& has_template) {
    const std::string type = type_of(part);
    if (part.is_null() || type == "ByteLevel") return {};  // ByteLevel changes offsets only
    if (type == "TemplateProcessing") {
        has_template = true;
        return read_template_processing(part, field, file);
    }
    if (type == "Sequence" && part["processors"].is_array()) {
        const Json::Array& parts = part["processors"].as_array();
        for (size_t i = 0; i < parts.size(); ++i) {
            RETURN_IF_ERROR(read_post_processor(
                parts[i], fmt::format("{}.processors[{}]", field, i), file, has_template));
        }
        return {};
    }
    return unsupported(field, part, "ByteLevel, TemplateProcessing or a Sequence of these");
}

Status read_decoder(const Json& part, const std::string& field) {
    if (type_of(part) == "ByteLevel") return {};
    const Json& parts = part["decoders"];
    if (type_of(part) == "Sequence" && parts.is_array() && parts.as_array().size() == 1) {
        return read_decoder(parts.as_array()[0], field + ".decoders[0]");
    }
    return unsupported(field, part, "ByteLevel");
}

Status read_merges(const Json& merges, TokenizerFile& file) {
    if (!merges.is_array()) return unsupported("model.merges", merges, "a list");
    file.merges.reserve(merges.as_array().size());
    for (size_t i = 0; i < merges.as_array().size(); ++i) {
        const Json& merge = merges.as_array()[i];
        std::string left, right;
        if (merge.is_string()) {  // "left right": the alphabet has no space
            const std::string& text = merge.as_string();
            const size_t space = text.find(' ');
            if (space != std::string::npos) {
                left = text.substr(0, space);
                right = text.substr(space + 1);
            }
        } else if (merge.is_array() && merge.as_array().size() == 2 &&
                   merge.as_array()[0].is_string() && merge.as_array()[1].is_string()) {
            left = merge.as_array()[0].as_string();
            right = merge.as_array()[1].as_string();
        }
        if (left.empty() || right.empty()) {
            return unsupported(fmt::format("model.merges[{}]", i), merge,
                               "\"left right\" or [\"left\", \"right\"]");
        }
        file.merges.emplace_back(byte_level_bytes(left), byte_level_bytes(right));
    }
    return {};
}

Status read_model(const Json& model, TokenizerFile& file) {
    if (type_of(model) != "BPE") return unsupported("model.type", model["type"], "BPE");
    // unk_token and fuse_unk say what becomes of unknown characters; there are none, because all
    // 256 bytes must be in the vocabulary.
    RETURN_IF_ERROR(require_unset(model, "model",
                                  {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                                   "byte_fallback"}));
    auto ignore_merges = read_bool(model, "ignore_merges", "model", false);
    if (!ignore_merges) return ignore_merges.error();
    file.ignore_merges = *ignore_merges;
    const Json& vocab = model["vocab"];
    if (!vocab.is_object()) return unsupported("model.vocab", vocab, "an object");
    file.vocab.reserve(vocab.as_object().size());
    for (const auto& [token, id] : vocab.as_object()) {
        if (!id.is_int() || id.as_int() < 0 || id.as_int() > 1 << 28) {
            return unsupported(fmt::format("model.vocab[\"{}\"]", token), id, "a token id");
        }
        file.vocab.push_back({byte_level_bytes(token), static_cast<int32_t>(id.as_int()),
                              is_byte_level(token)});
    }
    return read_merges(model["merges"], file);
}

// bos_token and eos_token are a text, or an object that describes an added token, or null.
Result<std::string> read_named_token(const Json& config, const char* key) {
    const Json& value = config[key];
    const Json& text = value.is_object() ? value["content"] : value;
    if (text.is_null()) return std::string();
    if (!text.is_string()) return unsupported(key, value, "a text or an added token");
    return text.as_string();
}

Status read_config(const Json& config, bool has_template, TokenizerFile& file) {
    auto bos = read_named_token(config, "bos_token");
    if (!bos) return bos.error();
    auto eos = read_named_token(config, "eos_token");
    if (!eos) return eos.error();
    file.bos_token = *std::move(bos);
    file.eos_token = *std::move(eos);
    // Older files carry no TemplateProcessing; the flags here stand for it.
    if (!has_template) {
        auto add_bos = read_bool(config, "add_bos_token", "tokenizer_config", false);
        if (!add_bos) return add_bos.error();
        auto add_eos = read_bool(config, "add_eos_token", "tokenizer_config", false);
        if (!add_eos) return add_eos.error();
        if (*add_bos && !file.bos_token.empty()) file.tokens_before.push_back(file.bos_token);
        if (*add_eos && !file.eos_token.empty()) file.tokens_after.push_back(file.eos_token);
    }
    if (config["clean_up_tokenization_spaces"] == Json(true)) {
        log_warning("tokenizer_config.json: clean_up_tokenization_spaces is taken as false: decoded "
                    "text is exactly the tokens' bytes");
    }
    return {};
}

Status read_root(const Json& root, TokenizerFile& file, bool& has_template) {
    // "truncation" and "padding" are what the file's maker last used; a caller decides these.
    RETURN_IF_ERROR(read_added_tokens(root, file));
    RETURN_IF_ERROR(read_normalizer(root["normalizer"], "normalizer"));
    bool byte_level = false;
    RETURN_IF_ERROR(read_pre_tokenizer(root["pre_tokenizer"], "pre_tokenizer", file, byte_level));
    if (!byte_level) {
        return unsupported("pre_tokenizer", root["pre_tokenizer"], "one that ends with ByteLevel");
    }
    RETURN_IF_ERROR(
        read_post_processor(root["post_processor"], "post_processor", file, has_template));
    RETURN_IF_ERROR(read_decoder(root["decoder"], "decoder"));
    return read_model(root["model"], file);
}

}  // namespace

Result<TokenizerFile> read_tokenizer_file(const std::string& model_dir) {
    const std::string path = model_dir + "/tokenizer.json";
    auto root = read_json_file(path);
    if (!root) return root.error();
    TokenizerFile file;
    bool has_template = false;
    if (auto status = read_root(*root, file, has_template); !status) {
        return error("{}: {}", path, status.message());
    }
    const std::string config_path = model_dir + "/tokenizer_config.json";
    struct stat info;
    if (::stat(config_path.c_str(), &info) != 0) return file;
    auto config = read_json_file(config_path);
    if (!config) return config.error();
    if (auto status = read_config(*config, has_template, file); !status) {
        return error("{}: {}", config_path, status.message());
    }
    return file;
}

}  // namespace aerie
