// The same ids and texts as Python's `tokenizers` for every golden case of both tokenizers.
// tests/text/make_goldens.py writes the files.
#include <gtest/gtest.h>

#include <map>

#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace aerie {
namespace {

std::string from_hex(std::string_view hex) {
    std::string bytes;
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
        bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
    }
    return bytes;
}

std::vector<int32_t> ids_of(const Json& row) {
    std::vector<int32_t> ids;
    for (const Json& id : row["ids"].as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
    return ids;
}

std::string decode_one_by_one(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                              bool skip_special_tokens) {
    IncrementalDecoder decoder(tokenizer, skip_special_tokens);
    std::string text;
    for (int32_t id : ids) text += decoder.push(id);
    return text + decoder.finish();
}

struct Loaded {
    Json golden = Json::object();
    std::unique_ptr<Tokenizer> tokenizer;
};

// Read once for all tests: the real tokenizer takes a second.
const Loaded& load(const std::string& name) {
    static std::map<std::string, Loaded> loaded;
    Loaded& entry = loaded[name];
    if (entry.tokenizer) return entry;
    const std::string root = AERIE_SOURCE_DIR "/";
    auto golden = read_json_file(root + "tests/text/golden_tokens_" + name + ".json");
    CHECK(golden.ok(), "{}", golden.message());
    entry.golden = *std::move(golden);
    auto tokenizer = Tokenizer::load(root + entry.golden["model_dir"].as_string());
    CHECK(tokenizer.ok(), "{}", tokenizer.message());
    entry.tokenizer = *std::move(tokenizer);
    return entry;
}

class Golden : public testing::TestWithParam<const char*> {
  protected:
    const Json& golden_ = load(GetParam()).golden;
    const Tokenizer& tokenizer_ = *load(GetParam()).tokenizer;
};

TEST_P(Golden, EncodesAsPython) {
    int num_texts = 0;
    for (const Json& row : golden_["cases"].as_array()) {
        if (row.find("decoded")) continue;
        const std::string text =
            row.find("hex") ? from_hex(row["hex"].as_string()) : row["text"].as_string();
        ASSERT_EQ(tokenizer_.encode(text), ids_of(row)) << row.dump();
        ++num_texts;
    }
    EXPECT_GE(num_texts, 2000);
}

TEST_P(Golden, DecodesAsPython) {
    int num_lists = 0;
    for (const Json& row : golden_["cases"].as_array()) {
        if (!row.find("decoded")) continue;
        const auto ids = ids_of(row);
        for (bool skip : {false, true}) {
            const std::string& expected = row[skip ? "without_special" : "decoded"].as_string();
            ASSERT_EQ(tokenizer_.decode(ids, skip), expected) << row.dump();
            ASSERT_EQ(decode_one_by_one(tokenizer_, ids, skip), expected) << row.dump();
        }
        ++num_lists;
    }
    EXPECT_GE(num_lists, 400);
}

TEST_P(Golden, TextComesBack) {
    for (const Json& row : golden_["cases"].as_array()) {
        if (!row.find("text")) continue;
        ASSERT_EQ(tokenizer_.decode(ids_of(row), false), row["text"].as_string());
    }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden, testing::Values("demo", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace aerie
