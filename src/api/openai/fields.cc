#include "api/openai/fields.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "api/openai/grammars.h"
#include "parse/stop_regexes.h"

namespace aerie::openai {
namespace {

using api::ApiError;
using api::Call;
using api::MaybeError;

struct Context {
    const char* name;   // of the field
    const Json& value;  // not null
    const api::CallDefaults& defaults;
    Call& call;

    MaybeError wrong(std::string_view expected) const {
        return openai::wrong(name, expected, value);
    }
};

// ---- reading one value ----

MaybeError read_bool(const Context& c, bool& into) {
    if (!c.value.is_bool()) return c.wrong("true or false");
    into = c.value.as_bool();
    return {};
}

constexpr size_t kMaxName = 256;  // bytes of rid, cache_salt, …: they live as long as the request

MaybeError read_string(const Context& c, std::string& into) {
    if (!c.value.is_string()) return c.wrong("a string");
    if (c.value.as_string().size() > kMaxName) {
        return ApiError{.message = fmt::format("{} must have at most {} bytes, got {}", c.name,
                                               kMaxName, c.value.as_string().size()),
                        .param = c.name};
    }
    into = c.value.as_string();
    return {};
}

// Whole numbers may be written 16.0.
bool is_whole(const Json& value, int64_t min, int64_t max) {
    if (value.is_int()) return value.as_int() >= min && value.as_int() <= max;
    return value.is_double() && value.as_double() == std::floor(value.as_double()) &&
           std::abs(value.as_double()) < 9e15 && value.as_double() >= static_cast<double>(min) &&
           value.as_double() <= static_cast<double>(max);
}
int64_t whole(const Json& value) {
    return value.is_int() ? value.as_int() : static_cast<int64_t>(value.as_double());
}

template <typename T>
MaybeError read_whole(const Context& c, int64_t min, int64_t max, std::string_view expected,
                      T& into) {
    if (!is_whole(c.value, min, max)) return c.wrong(expected);
    into = static_cast<T>(whole(c.value));
    return {};
}

MaybeError read_number(const Context& c, bool (*valid)(double), std::string_view expected,
                       double& into) {
    if (!c.value.is_number() || !std::isfinite(c.value.as_double()) ||
        !valid(c.value.as_double())) {
        return c.wrong(expected);
    }
    into = c.value.as_double();
    return {};
}

bool is_false(const Json& v) { return v.is_bool() && !v.as_bool(); }

// ---- reading one field ----

constexpr size_t kMaxStopRegexes = 4;  // each is matched for each token
constexpr size_t kMaxStopIds = 1024;
constexpr int kMaxTopLogprobs = 20;
constexpr double kGreedyBelow = 1e-6;  // a temperature that would overflow the logits

MaybeError read_temperature(const Context& c) {
    double& into = c.call.sampling.temperature;
    auto error = read_number(
        c, [](double x) { return x >= 0; }, "a non-negative finite number", into);
    if (into < kGreedyBelow) into = 0;
    return error;
}
MaybeError read_top_p(const Context& c) {
    return read_number(
        c, [](double x) { return x > 0 && x <= 1; }, "in (0, 1]", c.call.sampling.top_p);
}
MaybeError read_top_k(const Context& c) {
    if (!is_whole(c.value, 1, INT32_MAX) && !is_whole(c.value, -1, -1)) {
        return c.wrong("-1 (all) or at least 1");
    }
    c.call.sampling.top_k = static_cast<int>(whole(c.value));
    return {};
}
MaybeError read_min_p(const Context& c) {
    return read_number(
        c, [](double x) { return x >= 0 && x <= 1; }, "in [0, 1]", c.call.sampling.min_p);
}
MaybeError read_max_tokens(const Context& c) {
    int value = 0;
    auto error = read_whole(c, 1, INT32_MAX, "a whole number of at least 1", value);
    if (!error) c.call.max_tokens = value;
    return error;
}
MaybeError read_min_tokens(const Context& c) {
    return read_whole(c, 0, INT32_MAX, "a whole number of at least 0",
                      c.call.sampling.min_new_tokens);
}
MaybeError read_n(const Context& c) {
    const int max = c.defaults.limits.max_n;
    return read_whole(c, 1, max, fmt::format("a whole number from 1 to {} (http_max_n)", max),
                      c.call.n);
}
MaybeError read_seed(const Context& c) {
    int64_t value = 0;
    auto error = read_whole(c, INT64_MIN, INT64_MAX, "a whole number of 64 bits", value);
    if (!error) c.call.seed = static_cast<uint64_t>(value);
    return error;
}
// `setting`: in brackets, where one says how many there may be.
MaybeError read_strings(const Context& c, size_t max, const char* setting,
                        std::vector<std::string>& into) {
    const char* const expected = "a string or a list of strings, none of them empty";
    const auto valid = [](const Json& item) {
        return item.is_string() && !item.as_string().empty();
    };
    if (valid(c.value)) {
        into = {c.value.as_string()};
        return {};
    }
    if (!c.value.is_array()) return c.wrong(expected);
    if (c.value.as_array().size() > max) {
        return ApiError{.message = fmt::format("{} must have at most {} strings{}, got {}", c.name,
                                               max, setting, c.value.as_array().size()),
                        .param = c.name};
    }
    for (const Json& item : c.value.as_array()) {
        if (!valid(item)) return c.wrong(expected);
        into.push_back(item.as_string());
    }
    return {};
}
MaybeError read_stop(const Context& c) {
    const auto max = static_cast<size_t>(c.defaults.limits.max_stop_strings);
    return read_strings(c, max, " (http_max_stop_strings)", c.call.stop);
}
MaybeError read_stop_regex(const Context& c) {
    if (auto error = read_strings(c, kMaxStopRegexes, "", c.call.stop_regex)) return error;
    const auto compiled = parse::StopRegexes::compile(c.call.stop_regex, false);
    if (compiled.ok()) return {};
    return ApiError{.message = "stop_regex: " + compiled.message(), .param = "stop_regex"};
}
MaybeError read_stop_token_ids(const Context& c) {
    const std::string expected =
        fmt::format("a list of at most {} token ids from 0 to {}", kMaxStopIds,
                    c.defaults.vocab_size - 1);
    if (!c.value.is_array() || c.value.as_array().size() > kMaxStopIds) return c.wrong(expected);
    for (const Json& item : c.value.as_array()) {
        if (!is_whole(item, 0, c.defaults.vocab_size - 1)) return c.wrong(expected);
        c.call.sampling.stop_token_ids.push_back(static_cast<int32_t>(whole(item)));
    }
    return {};
}
MaybeError read_stream_options(const Context& c) {
    if (!c.value.is_object()) return c.wrong("an object");
    const auto read = [&](const char* name, const char* key, bool& into) -> MaybeError {
        const Json& value = c.value[key];
        if (value.is_null()) return {};
        return read_bool({name, value, c.defaults, c.call}, into);
    };
    if (auto error = read("stream_options.include_usage", "include_usage", c.call.include_usage)) {
        return error;
    }
    return read("stream_options.continuous_usage_stats", "continuous_usage_stats",
                c.call.continuous_usage_stats);
}
MaybeError read_penalty(const Context& c, double& into) {
    return read_number(
        c, [](double x) { return x >= -2 && x <= 2; }, "in [-2, 2]", into);
}
MaybeError read_repetition_penalty(const Context& c) {
    return read_number(
        c, [](double x) { return x > 0 && x <= 2; }, "in (0, 2]",
        c.call.sampling.repetition_penalty);
}
// {"token id": bias}
MaybeError read_logit_bias(const Context& c) {
    const auto max = static_cast<size_t>(c.defaults.limits.max_logit_bias);
    const std::string expected = fmt::format(
        "an object of at most {} (http_max_logit_bias) token ids from 0 to {}, each with a number "
        "in [-100, 100]",
        max, c.defaults.vocab_size - 1);
    if (!c.value.is_object() || c.value.as_object().size() > max) return c.wrong(expected);
    for (const auto& [name, bias] : c.value.as_object()) {
        int32_t id = -1;
        const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), id);
        if (failure != std::errc() || end != name.data() + name.size() || id < 0 ||
            id >= c.defaults.vocab_size || !bias.is_number() ||
            !(std::abs(bias.as_double()) <= 100)) {
            return ApiError{
                .message = fmt::format("logit_bias must be {}, got \"{}\": {}", expected,
                                       name.substr(0, 20), got(bias).substr(4)),
                .param = "logit_bias"};
        }
        c.call.sampling.logit_bias.push_back({id, static_cast<float>(bias.as_double())});
    }
    return {};
}
MaybeError read_chat_logprobs(const Context& c) {
    bool wanted = false;
    if (auto error = read_bool(c, wanted)) return error;
    if (wanted) c.call.sampling.num_top_logprobs = 0;
    return {};
}
MaybeError read_top_logprobs(const Context& c) {
    int count = 0;
    if (auto error =
            read_whole(c, 0, kMaxTopLogprobs,
                       fmt::format("a whole number from 0 to {}", kMaxTopLogprobs), count)) {
        return error;
    }
    if (count > 0 && c.call.sampling.num_top_logprobs < 0) {
        return ApiError{.message = "top_logprobs needs logprobs to be true",
                        .param = "top_logprobs"};
    }
    if (c.call.sampling.num_top_logprobs >= 0) c.call.sampling.num_top_logprobs = count;
    return {};
}
MaybeError read_completion_logprobs(const Context& c) {
    if (is_false(c.value)) return {};
    return read_whole(c, 0, kMaxTopLogprobs,
                      fmt::format("a whole number from 0 to {}", kMaxTopLogprobs),
                      c.call.sampling.num_top_logprobs);
}
MaybeError read_any_string(const Context& c) {
    std::string unused;
    return read_string(c, unused);
}

using Kind = Grammar::Kind;
MaybeError read_grammar(const Context& c, Kind kind) {
    return read_grammar_text(c.name, kind, c.value, c.call);
}

// ---- fields that are not built yet: the values that change nothing ----

bool is_zero(const Json& v) { return v.is_number() && v.as_double() == 0; }
bool is_one(const Json& v) { return v.is_number() && v.as_double() == 1; }
bool is_false_or_zero(const Json& v) { return is_false(v) || is_zero(v); }
bool is_empty(const Json& v) {
    return (v.is_string() && v.as_string().empty()) || (v.is_array() && v.as_array().empty()) ||
           (v.is_object() && v.as_object().empty());
}
bool is_none_choice(const Json& v) { return v == Json("none") || v == Json("auto"); }

struct Field {
    const char* name;
    unsigned endpoints;
    MaybeError (*read)(const Context&);         // null: not built yet
    bool (*is_neutral)(const Json&) = nullptr;  // of a field not built yet: changes nothing
};

constexpr unsigned kBoth = kChat | kCompletion;

const Field kFields[] = {
    {"model", kBoth, [](const Context& c) { return read_string(c, c.call.model); }},
    {"max_tokens", kBoth, read_max_tokens},
    {"max_completion_tokens", kChat, read_max_tokens},  // wins: it is read later
    {"temperature", kBoth, read_temperature},
    {"top_p", kBoth, read_top_p},
    {"top_k", kBoth, read_top_k},
    {"min_p", kBoth, read_min_p},
    {"n", kBoth, read_n},
    {"seed", kBoth, read_seed},
    {"stop", kBoth, read_stop},
    {"stop_regex", kBoth, read_stop_regex},
    {"stop_token_ids", kBoth, read_stop_token_ids},
    {"min_tokens", kBoth, read_min_tokens},
    {"ignore_eos", kBoth,
     [](const Context& c) { return read_bool(c, c.call.sampling.ignore_eos); }},
    {"skip_special_tokens", kBoth,
     [](const Context& c) { return read_bool(c, c.call.skip_special_tokens); }},
    {"no_stop_trim", kBoth, [](const Context& c) { return read_bool(c, c.call.no_stop_trim); }},
    {"stream", kBoth, [](const Context& c) { return read_bool(c, c.call.stream); }},
    {"stream_options", kBoth, read_stream_options},
    {"rid", kBoth, [](const Context& c) { return read_string(c, c.call.rid); }},
    {"priority", kBoth,
     [](const Context& c) {
         return read_whole(c, INT32_MIN, INT32_MAX, "a whole number of 32 bits", c.call.priority);
     }},
    {"cache_salt", kBoth, [](const Context& c) { return read_string(c, c.call.cache_salt); }},
    {"user", kBoth, read_any_string},
    {"return_token_ids", kBoth,
     [](const Context& c) { return read_bool(c, c.call.return_token_ids); }},
    // An extension for tests: see Request::hash_logits.
    {"logits_hash", kBoth, [](const Context& c) { return read_bool(c, c.call.logits_hash); }},
    {"frequency_penalty", kBoth,
     [](const Context& c) { return read_penalty(c, c.call.sampling.frequency_penalty); }},
    {"presence_penalty", kBoth,
     [](const Context& c) { return read_penalty(c, c.call.sampling.presence_penalty); }},
    {"repetition_penalty", kBoth, read_repetition_penalty},
    {"logit_bias", kBoth, read_logit_bias},
    {"logprobs", kChat, read_chat_logprobs},
    {"top_logprobs", kChat, read_top_logprobs},  // after logprobs, which it refines
    {"logprobs", kCompletion, read_completion_logprobs},
    {"echo", kCompletion, [](const Context& c) { return read_bool(c, c.call.echo); }},
    {"response_format", kBoth,
     [](const Context& c) { return read_response_format(c.value, c.call); }},
    {"json_schema", kBoth, [](const Context& c) { return read_grammar(c, Kind::kJsonSchema); }},
    {"regex", kBoth, [](const Context& c) { return read_grammar(c, Kind::kRegex); }},
    {"ebnf", kBoth, [](const Context& c) { return read_grammar(c, Kind::kEbnf); }},
    {"structural_tag", kBoth,
     [](const Context& c) { return read_grammar(c, Kind::kStructuralTag); }},

    {"functions", kChat, nullptr, is_empty},
    {"function_call", kChat, nullptr, is_none_choice},
    {"top_logprobs", kCompletion, nullptr, is_zero},
    {"suffix", kCompletion, nullptr, is_empty},
    {"best_of", kCompletion, nullptr, is_one},
    {"lora_path", kBoth, nullptr, is_empty},
    {"session_params", kBoth, nullptr, is_empty},
    {"custom_logit_processor", kBoth, nullptr, is_empty},
    {"custom_params", kBoth, nullptr, is_empty},
    {"return_hidden_states", kBoth, nullptr, is_false_or_zero},
};

MaybeError not_supported(const Field& field, const Json& value) {
    return ApiError{
        .message = fmt::format("{} is not supported yet, {}: leave it out", field.name, got(value)),
        .param = field.name,
        .code = "unsupported_parameter"};
}

// Checks that concern two fields.
MaybeError check_together(Call& call) {
    // An echo is part of the text whose logprobs are asked for.
    if (call.echo && call.sampling.num_top_logprobs >= 0) call.sampling.prompt_logprobs_from = 0;
    if (call.max_tokens && call.sampling.min_new_tokens > *call.max_tokens) {
        return ApiError{.message = fmt::format("min_tokens must be at most max_tokens ({}), got {}",
                                               *call.max_tokens, call.sampling.min_new_tokens),
                        .param = "min_tokens"};
    }
    return {};
}

}  // namespace

std::string got(const Json& value) {
    constexpr size_t kShown = 60;  // bytes
    // Long values are not written out only to be cut.
    if (value.is_array() && value.as_array().size() > kShown) {
        return fmt::format("got a list of {} items", value.as_array().size());
    }
    if (value.is_string() && value.as_string().size() > kShown) {
        return fmt::format("got a string of {} bytes", value.as_string().size());
    }
    const std::string text = value.dump();
    if (text.size() <= 2 * kShown) return "got " + text;
    return fmt::format("got {} {} of {} bytes", value.is_object() ? "an" : "a", value.type_name(),
                       text.size());
}

ApiError wrong(std::string field, std::string_view expected, const Json& value) {
    return ApiError{.message = fmt::format("{} must be {}, {}", field, expected, got(value)),
                    .param = std::move(field)};
}

MaybeError read_fields(const Json& body, Endpoint endpoint, const api::CallDefaults& defaults,
                       Call& call) {
    for (const Field& field : kFields) {
        if (!(field.endpoints & endpoint)) continue;
        const Json* value = body.find(field.name);
        if (!value || value->is_null()) continue;
        if (field.read) {
            if (auto error = field.read({field.name, *value, defaults, call})) return error;
        } else if (!field.is_neutral(*value)) {
            return not_supported(field, *value);
        }
    }
    return check_together(call);
}

}  // namespace aerie::openai
