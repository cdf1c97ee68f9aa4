#include "app/bench_options.h"

#include <charconv>
#include <ctime>
#include <set>
#include <variant>

#include "config/nearest.h"

namespace aerie::bench {
namespace {

struct Integer {
    int64_t* value;
    int64_t min, max;
};
struct Number {
    double* value;
    double min, max;
};
struct IntegerOf32 {
    int* value;
    int min, max;
};

struct Flag {
    const char* name;
    const char* value_name;  // "" for a switch
    const char* help;
    std::variant<bool*, std::string*, Integer, IntegerOf32, Number> target;
    bool compare_only = false;
};

std::vector<Flag> make_flags(Options& o, bool& help) {
    constexpr int kMany = 1'000'000;
    constexpr int64_t kSeedMax = int64_t{1} << 53;  // what JSON's readers keep exact
    LoadShape& load = o.load;
    return {
        {"--url", "URL", "the server [http://127.0.0.1:30000]", &o.url},
        {"--requests", "N", "how many, after the warm-up [4 x concurrency]",
         IntegerOf32{&load.requests, 1, kMany}},
        {"--concurrency", "C", "how many at a time [4]", IntegerOf32{&load.concurrency, 1, 4096}},
        {"--rate", "R", "start R requests a second, as far as C allows [as fast as C allows]",
         Number{&load.rate, 1e-3, 1e6}},
        {"--prompt-len", "P", "tokens of each prompt: random ids [128]",
         IntegerOf32{&load.prompt_len, 1, kMany}},
        {"--prefixes", "N", "each prompt begins with one of N texts, in turn [0]",
         IntegerOf32{&load.num_prefixes, 0, kMany}},
        {"--prefix-len", "L", "tokens of each of these, beside --prompt-len [0]",
         IntegerOf32{&load.prefix_len, 0, kMany}},
        {"--prompts", "FILE", "prompts and lengths of a JSON file, as models/demo/golden has them", &o.prompts},
        {"--output-len", "O", "tokens of each answer: greedy, ignore_eos [128]",
         IntegerOf32{&load.output_len, 1, kMany}},
        {"--seed", "S", "of the prompts; the same again may hit the prefix cache [the time]",
         Integer{&load.seed, 0, kSeedMax}},
        {"--max-token-id", "ID", "prompts draw from ids 3 ... ID [8159]",
         IntegerOf32{&load.max_token_id, 3, kMany}},
        {"--warmup", "K", "requests before the clock starts [1]",
         IntegerOf32{&load.warmup, 0, kMany}},
        {"--model", "NAME", "[the first of /v1/models]", &load.model},
        {"--api-key", "KEY", "sent as a bearer token", &load.api_key},
        {"--timeout", "SECONDS", "for one request, from its start to its last byte [600]",
         Number{&load.timeout_s, 0.001, 1e6}},
        {"--json", "", "print the result as JSON", &o.json},
        {"--compare", "'ARGS'", "serve options of A, in one argument", &o.compare},
        {"--versus", "'ARGS'", "serve options of B [A's, with separation off]", &o.versus, true},
        {"--rounds", "R", "how often each is started and measured, in turn [3]",
         IntegerOf32{&o.rounds, 1, 1000}, true},
        {"--start-timeout", "SECONDS", "until /health answers 200 [300]",
         Number{&o.start_timeout_s, 0.1, 1e6}, true},
        {"--help", "", "print this and exit", &help},
    };
}

std::string found(const std::string& flag, const std::string& value, const std::string& expected) {
    return fmt::format("command line: {}: found {}, expected {}", flag,
                       value.empty() ? "nothing" : value, expected);
}

template <typename T>
bool read_number(const std::string& text, T min, T max, T& into) {
    T value{};
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || !(value >= min && value <= max)) return false;
    into = value;
    return true;
}

// What was expected, where `value` does not fit; else nothing.
std::string assign(const Flag& flag, const std::string& value) {
    if (auto* text = std::get_if<std::string*>(&flag.target)) {
        **text = value;
        return value.empty() ? "a value" : "";
    }
    if (auto* whole = std::get_if<Integer>(&flag.target)) {
        if (read_number(value, whole->min, whole->max, *whole->value)) return "";
        return fmt::format("a whole number from {} to {}", whole->min, whole->max);
    }
    if (auto* whole = std::get_if<IntegerOf32>(&flag.target)) {
        if (read_number(value, whole->min, whole->max, *whole->value)) return "";
        return fmt::format("a whole number from {} to {}", whole->min, whole->max);
    }
    const Number& number = std::get<Number>(flag.target);
    if (read_number(value, number.min, number.max, *number.value)) return "";
    return fmt::format("a number from {} to {}", number.min, number.max);
}

void check_together(const std::vector<Flag>& flags, const std::set<std::string>& given,
                    ParsedOptions& parsed) {
    Options& options = parsed.options;
    LoadShape& load = options.load;
    auto& errors = parsed.errors;
    if (!given.contains("--requests")) load.requests = 4 * load.concurrency;
    if (!given.contains("--seed")) load.seed = static_cast<int64_t>(std::time(nullptr));
    if (load.requests < load.concurrency) {
        errors.push_back(found("--requests", std::to_string(load.requests),
                               fmt::format("at least --concurrency, which is {}",
                                           load.concurrency)));
    }
    if ((load.num_prefixes > 0) != (load.prefix_len > 0)) {
        errors.push_back(found("--prefixes", std::to_string(load.num_prefixes),
                               fmt::format("it and --prefix-len, which is {}, both or neither",
                                           load.prefix_len)));
    }
    if (!options.prompts.empty()) {
        if (auto examples = read_examples(options.prompts))
            load.examples = *std::move(examples);
        else
            errors.push_back("command line: --prompts: " + examples.message());
    }
    if (auto endpoint = parse_url(options.url); !endpoint) {
        errors.push_back("command line: --url: " + endpoint.message());
    }
    for (const auto& [flag, text] : {std::pair{"--compare", &options.compare},
                                     std::pair{"--versus", &options.versus}}) {
        if (auto words = split_words(*text); !words) {
            errors.push_back(fmt::format("command line: {}: {}", flag, words.message()));
        }
    }
    if (given.contains("--compare")) {
        if (given.contains("--url")) {
            errors.push_back("command line: --url: found beside --compare, which starts servers of "
                             "its own; expected one of the two");
        }
        return;
    }
    for (const Flag& flag : flags) {
        if (flag.compare_only && given.contains(flag.name)) {
            errors.push_back(fmt::format("command line: {}: found without --compare, expected with "
                                         "it", flag.name));
        }
    }
}

const Flag* find(const std::vector<Flag>& flags, const std::string& name) {
    for (const Flag& flag : flags) {
        if (name == flag.name || (name == "-h" && std::string(flag.name) == "--help")) return &flag;
    }
    return nullptr;
}

}  // namespace

ParsedOptions parse_options(const std::vector<std::string>& arguments) {
    ParsedOptions parsed;
    const std::vector<Flag> flags = make_flags(parsed.options, parsed.help);
    std::set<std::string> given;
    for (size_t i = 0; i < arguments.size(); ++i) {
        const size_t equals = arguments[i].find('=');
        const bool joined = equals != std::string::npos && arguments[i].rfind("--", 0) == 0;
        const std::string name = joined ? arguments[i].substr(0, equals) : arguments[i];
        const Flag* flag = find(flags, name);
        if (!flag) {
            std::vector<std::string> known;
            for (const Flag& other : flags) known.emplace_back(other.name);
            parsed.errors.push_back(fmt::format("command line: unknown option {}{}", name,
                                                did_you_mean(name, known)));
            // What follows is probably its value.
            if (!joined && i + 1 < arguments.size() && arguments[i + 1].rfind("-", 0) != 0) ++i;
            continue;
        }
        given.insert(flag->name);
        if (auto* on = std::get_if<bool*>(&flag->target)) {
            **on = true;
            if (joined) parsed.errors.push_back(found(name, arguments[i], "no value"));
            continue;
        }
        const bool has_value = joined || i + 1 < arguments.size();
        const std::string value = joined      ? arguments[i].substr(equals + 1)
                                  : has_value ? arguments[++i]
                                              : "";
        const std::string expected = assign(*flag, value);
        if (!expected.empty()) parsed.errors.push_back(found(name, value, expected));
    }
    check_together(flags, given, parsed);
    return parsed;
}

std::string help_text() {
    Options options;
    bool help = false;
    std::string text =
        "usage: aerie bench [options]                              one load on a running server\n"
        "       aerie bench --compare 'ARGS A' [--versus 'ARGS B'] [options]\n"
        "                                                          two servers under the same load\n"
        "\n"
        "Separation on against off, with one pair of files:\n"
        "  aerie bench --compare '--config configs/demo/settings.json "
        "--ae-config configs/demo/config.toml'\n"
        "\n"
        "--compare starts `aerie serve ARGS` for A and for B in turn, waits for /health, runs the\n"
        "load, stops the server by SIGTERM and expects exit status 0, --rounds times over, and\n"
        "prints the medians and the ratios A / B of each round. Where --versus is not given, A is\n"
        "ARGS --enable-ae-separation true, and B is ARGS --enable-ae-separation false.\n"
        "\n"
        "Exit status: 0; 1 where a request or a server failed; 2 after a mistake in the options.\n"
        "\n";
    for (const Flag& flag : make_flags(options, help)) {
        text += fmt::format("  {:<26} {}\n", fmt::format("{} {}", flag.name, flag.value_name),
                            flag.help);
    }
    return text;
}

Result<std::vector<std::string>> split_words(const std::string& text) {
    std::vector<std::string> words;
    bool in_word = false;
    char quote = 0;
    for (const char c : text) {
        if (quote ? c == quote : c == '\'' || c == '"') {
            if (!quote && !in_word) words.emplace_back();
            in_word = true;
            quote = quote ? 0 : c;
        } else if (!quote && (c == ' ' || c == '\t' || c == '\n')) {
            in_word = false;
        } else {
            if (!in_word) words.emplace_back();
            in_word = true;
            words.back() += c;
        }
    }
    if (quote) return error("found an open {} in {}, expected it to be closed", quote, text);
    return words;
}

}  // namespace aerie::bench
