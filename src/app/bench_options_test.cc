#include "app/bench_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace aerie::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(BenchOptions, Defaults) {
    const ParsedOptions parsed = parse_options({});
    EXPECT_THAT(parsed.errors, IsEmpty());
    EXPECT_EQ(parsed.options.load.requests, 4 * parsed.options.load.concurrency);
    EXPECT_TRUE(parsed.options.compare.empty());
}

TEST(BenchOptions, AreRead) {
    const ParsedOptions parsed = parse_options(
        {"--url=http://host:1234/v1", "--concurrency", "16", "--prompt-len=4096", "--output-len",
         "1", "--seed", "7", "--rate", "2.5", "--json", "--warmup", "0", "--model", "m"});
    EXPECT_THAT(parsed.errors, IsEmpty());
    const LoadShape& load = parsed.options.load;
    EXPECT_EQ(load.requests, 64);
    EXPECT_EQ(load.concurrency, 16);
    EXPECT_EQ(load.prompt_len, 4096);
    EXPECT_EQ(load.output_len, 1);
    EXPECT_EQ(load.seed, 7);
    EXPECT_DOUBLE_EQ(load.rate, 2.5);
    EXPECT_EQ(load.warmup, 0);
    EXPECT_EQ(load.model, "m");
    EXPECT_TRUE(parsed.options.json);
}

TEST(BenchOptions, MistakesNameFlagValueAndExpectation) {
    const struct {
        std::vector<std::string> arguments;
        std::string error;
    } cases[] = {
        {{"--requests", "many"},
         "command line: --requests: found many, expected a whole number from 1 to 1000000"},
        {{"--requests", "1.5"}, "--requests: found 1.5, expected a whole number"},
        {{"--requests", "0"}, "--requests: found 0, expected a whole number from 1"},
        {{"--requests"}, "--requests: found nothing, expected a whole number"},
        {{"--requests", "99999999999"}, "--requests: found 99999999999, expected a whole number"},
        {{"--requests", "2", "--concurrency", "3"},
         "--requests: found 2, expected at least --concurrency, which is 3"},
        {{"--rate", "nan"}, "--rate: found nan, expected a number from 0.001"},
        {{"--timeout", "-1"}, "--timeout: found -1, expected a number from"},
        {{"--seed", "-1"}, "--seed: found -1, expected a whole number from 0"},
        {{"--json=yes"}, "--json: found --json=yes, expected no value"},
        {{"--concurency", "3"}, "unknown option --concurency; did you mean --concurrency?"},
        {{"--url", "https://x"}, "--url: found https://x, expected http://HOST[:PORT]"},
        {{"--compare", "a 'b"}, "--compare: found an open ' in a 'b"},
        {{"--compare", ""}, "--compare: found nothing, expected a value"},
        {{"--versus", "x"}, "--versus: found without --compare"},
        {{"--rounds", "3"}, "--rounds: found without --compare"},
        {{"--compare", "x", "--url", "http://y"}, "--url: found beside --compare"},
    };
    for (const auto& [arguments, error] : cases) {
        EXPECT_THAT(parse_options(arguments).errors, testing::Contains(HasSubstr(error)))
            << arguments[0];
    }
}

TEST(BenchOptions, AllMistakesAreTold) {
    EXPECT_EQ(parse_options({"--requests", "x", "--bogus", "--rate", "y"}).errors.size(), 3u);
    EXPECT_EQ(parse_options({"--requests", "x", "--bogus", "7", "--rate=y"}).errors.size(), 3u);
}

TEST(BenchOptions, HelpNamesEveryFlagAndTheOneLineComparison) {
    const std::string help = help_text();
    for (const char* part : {"--url URL", "--requests N", "--compare 'ARGS'", "--rounds R",
                             "aerie bench --compare '--config configs/demo/settings.json "}) {
        EXPECT_THAT(help, HasSubstr(part));
    }
    EXPECT_TRUE(parse_options({"-h"}).help);
}

TEST(SplitWords, AsAShell) {
    EXPECT_THAT(*split_words("  a  --b='c d' \"\" e\"f\"g\n"),
                ElementsAre("a", "--b=c d", "", "efg"));
    EXPECT_THAT(*split_words(""), IsEmpty());
    EXPECT_FALSE(split_words("\"a").ok());
}

TEST(ParseUrl, HostAndPort) {
    const struct {
        const char* url;
        const char* host;
        int port;
    } good[] = {{"http://127.0.0.1:30000", "127.0.0.1", 30000},
                {"http://host", "host", 80},
                {"http://host:8000/v1", "host", 8000},
                {"http://[::1]:8000/", "::1", 8000}};
    for (const auto& [url, host, port] : good) {
        auto endpoint = parse_url(url);
        ASSERT_TRUE(endpoint.ok()) << url;
        EXPECT_EQ(endpoint->host, host);
        EXPECT_EQ(endpoint->port, port);
    }
    for (const char* url : {"", "host:80", "http://", "http://:80", "http://h:", "http://h:x",
                            "http://h:0", "http://h:65536", "http://h/path", "http://[::1"}) {
        EXPECT_FALSE(parse_url(url).ok()) << url;
    }
}

TEST(Examples, AreTakenInTurnWithTheirLengths) {
    const std::string path = testing::TempDir() + "/examples.json";
    const auto written = [&](const std::string& text) {
        std::ofstream(path) << text;
        return read_examples(path);
    };
    auto examples = written(R"([{"prompt_ids": [0, 5], "output_ids": [1, 2, 3]},
                                {"prompt_ids": [7], "output_len": 9}])");
    ASSERT_TRUE(examples.ok()) << examples.message();
    const LoadShape shape{.examples = *examples};
    EXPECT_EQ(prompt_ids(shape, 2), (std::vector<int32_t>{0, 5}));
    EXPECT_EQ(output_len(shape, 2), 3);
    EXPECT_EQ(prompt_ids(shape, -1), std::vector<int32_t>{7});
    EXPECT_EQ(output_len(shape, 1), 9);
    for (const char* bad : {"", "{}", "[]", "[1]", R"([{"prompt_ids": []}])", R"([{"prompt_ids": [1]}])",
                            R"([{"prompt_ids": [1.5], "output_len": 1}])",
                            R"([{"prompt_ids": [1], "output_len": 0}])"}) {
        EXPECT_FALSE(written(bad).ok()) << bad;
    }
    EXPECT_FALSE(read_examples("/nowhere").ok());
}

TEST(PromptIds, DependOnSeedAndIndexAloneAndStayInRange) {
    const LoadShape shape{.prompt_len = 1000, .seed = 5, .max_token_id = 12};
    const auto ids = prompt_ids(shape, 0);
    EXPECT_EQ(ids, prompt_ids(shape, 0));
    EXPECT_NE(ids, prompt_ids(shape, 1));
    const LoadShape shared{.prompt_len = 10, .num_prefixes = 2, .prefix_len = 50, .seed = 5};
    const auto first = prompt_ids(shared, 0), second = prompt_ids(shared, 2);
    ASSERT_EQ(first.size(), 60u);
    EXPECT_TRUE(std::equal(first.begin(), first.begin() + 50, second.begin()));
    EXPECT_NE(first, second);
    for (const int64_t index : {1, -1, -2}) EXPECT_NE(prompt_ids(shared, index)[1], first[1]);
    LoadShape other = shape;
    other.seed = 6;
    EXPECT_NE(ids, prompt_ids(other, 0));
    EXPECT_EQ(ids[0], 0);
    EXPECT_EQ(*std::min_element(ids.begin() + 1, ids.end()), 3);
    EXPECT_EQ(*std::max_element(ids.begin() + 1, ids.end()), 12);
}

}  // namespace
}  // namespace aerie::bench
