#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/json.h"

namespace aerie {
namespace {

using Ids = std::vector<int32_t>;

std::string utf8(int code) {
    if (code < 0x80) return std::string(1, static_cast<char>(code));
    return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

// The 256 bytes as ids 0 to 255 in the byte-level alphabet, then "he" 256, "ll" 257, "hell" 258,
// "Ġw" 259, and the added tokens <s> 260, <x> 261 and <x>y 262.
Json small_file() {
    Json vocab = Json::object();
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
        const bool itself = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        vocab.set(utf8(itself ? byte : next++), byte);
    }
    vocab.set("he", 256).set("ll", 257).set("hell", 258).set("Ġw", 259);
    const auto merge = [](const char* left, const char* right) {
        return Json(Json::Array{left, right});
    };
    Json root = Json::parse(R"({
        "added_tokens": [
            {"id": 260, "content": "<s>", "special": true, "normalized": false,
             "lstrip": false, "rstrip": false, "single_word": false},
            {"id": 261, "content": "<x>", "special": false, "normalized": true,
             "lstrip": true, "rstrip": true, "single_word": false},
            {"id": 262, "content": "<x>y", "special": false, "normalized": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": " ?[a-z]+"}, "behavior": "Isolated",
             "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
        "post_processor": {"type": "TemplateProcessing", "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}]},
        "decoder": {"type": "ByteLevel"}})")
                    .value();
    root.set("model", Json::object()
                          .set("type", "BPE")
                          .set("vocab", std::move(vocab))
                          .set("merges", Json::Array{merge("h", "e"), "l l", merge("he", "ll"),
                                                     "Ġ w"}));
    return root;
}

class TokenizerFiles : public testing::Test {
  protected:
    void SetUp() override {
        dir_ = testing::TempDir() + "/tokenizer_" +
               testing::UnitTest::GetInstance()->current_test_info()->name();
        std::filesystem::create_directories(dir_);
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }
    void write(const std::string& name, const std::string& text) {
        std::ofstream(dir_ + "/" + name) << text;
    }
    Result<std::unique_ptr<Tokenizer>> load(const Json& root) {
        write("tokenizer.json", root.dump());
        return Tokenizer::load(dir_);
    }
    std::string dir_;
};

TEST_F(TokenizerFiles, MergesByRankAndFindsAddedTokens) {
    auto loaded = load(small_file());
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    const Tokenizer& tokenizer = **loaded;
    const std::pair<const char*, Ids> cases[] = {
        {"", {}},
        {"hello", {258, 'o'}},
        {"hello world", {258, 'o', 259, 'o', 'r', 'l', 'd'}},
        {"lll", {257, 'l'}},
        {"<s>he", {260, 256}},
        {"a  <x>\n b", {'a', 261, 'b'}},  // takes the spaces on both sides
        {"<x>y<x>", {262, 261}},          // the longest first
        {"<s", {'<', 's'}},
        {"\xff", {0xef, 0xbf, 0xbd}},
        {"\xe4\xbd", {0xef, 0xbf, 0xbd}},
    };
    for (const auto& [text, ids] : cases) EXPECT_EQ(tokenizer.encode(text), ids) << text;
    EXPECT_EQ(tokenizer.encode_ordinary("<s>he"), (Ids{'<', 's', '>', 256}));
}

TEST_F(TokenizerFiles, AddsBosOnceWhereAsked) {
    auto loaded = load(small_file());
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    EXPECT_EQ((*loaded)->encode("he"), (Ids{256}));
    EXPECT_EQ((*loaded)->encode_with_special_tokens("he"), (Ids{260, 256}));
    EXPECT_EQ((*loaded)->encode_with_special_tokens("<s>he"), (Ids{260, 256}));
}

TEST_F(TokenizerFiles, AddBosTokenStandsForAMissingTemplate) {
    Json root = small_file();
    root.set("post_processor", Json::object().set("type", "ByteLevel"));
    write("tokenizer_config.json",
          R"({"add_bos_token": true, "bos_token": {"content": "<s>"}, "eos_token": "<x>"})");
    auto loaded = load(root);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    EXPECT_EQ((*loaded)->encode_with_special_tokens("he"), (Ids{260, 256}));
    EXPECT_EQ((*loaded)->bos_token(), "<s>");
    EXPECT_EQ((*loaded)->bos_id(), 260);
    EXPECT_EQ((*loaded)->eos_id(), 261);
}

TEST_F(TokenizerFiles, TokensByIdAndByText) {
    auto loaded = load(small_file());
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    const Tokenizer& tokenizer = **loaded;
    EXPECT_EQ(tokenizer.vocab_size(), 263);
    EXPECT_EQ(tokenizer.token_bytes(259), " w");
    EXPECT_EQ(tokenizer.token_bytes(0xff), "\xff");
    EXPECT_EQ(tokenizer.token_bytes(262), "<x>y");
    EXPECT_EQ(tokenizer.token_bytes(263), "");
    EXPECT_EQ(tokenizer.token_bytes(-1), "");
    EXPECT_TRUE(tokenizer.is_special(260));
    EXPECT_FALSE(tokenizer.is_special(261));
    EXPECT_FALSE(tokenizer.is_special(1 << 30));
    EXPECT_EQ(tokenizer.token_id("<x>"), 261);
    EXPECT_EQ(tokenizer.token_id(" w"), 259);
    EXPECT_EQ(tokenizer.token_id("nothing"), std::nullopt);
    const Ids ids = {260, 256, -5, 100000, 0xff};
    EXPECT_EQ(tokenizer.decode(ids, false), "<s>he\ufffd");
    EXPECT_EQ(tokenizer.decode(ids, true), "he\ufffd");
}

TEST_F(TokenizerFiles, HoldsBackIncompleteCharacters) {
    auto loaded = load(small_file());
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    IncrementalDecoder decoder(**loaded, true);
    EXPECT_EQ(decoder.push(0xe4), "");
    EXPECT_EQ(decoder.push(0xbd), "");
    EXPECT_EQ(decoder.push(260), "");  // a special token comes between
    EXPECT_EQ(decoder.push(0xa0), "你");
    EXPECT_EQ(decoder.push(0xf0), "");
    EXPECT_EQ(decoder.push('a'), "\ufffda");  // what follows shows that it is broken
    EXPECT_EQ(decoder.push(0xc3), "");
    EXPECT_EQ(decoder.finish(), "\ufffd");
    EXPECT_EQ(decoder.finish(), "");
}

TEST_F(TokenizerFiles, SeveralThreadsEncodeAtOnce) {
    auto loaded = load(small_file());
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    const Ids expected = (*loaded)->encode("hello world <s> shell wells");
    std::vector<Ids> results(8);
    std::vector<std::thread> threads;
    for (Ids& result : results) {
        threads.emplace_back([&] {
            for (int i = 0; i < 200; ++i) result = (*loaded)->encode("hello world <s> shell wells");
        });
    }
    for (auto& thread : threads) thread.join();
    for (const Ids& result : results) EXPECT_EQ(result, expected);
}

TEST_F(TokenizerFiles, LongRunsEndSoon) {
    auto loaded = load(small_file());
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    for (const char* unit : {"l", "he", " ", "\n", "1", "<", "你"}) {
        std::string text;
        while (text.size() < 300'000) text += unit;
        EXPECT_EQ((*loaded)->decode((*loaded)->encode(text), false), text) << unit;
    }
}

// What is changed in the file, and the field that the error must name.
struct Change {
    const char* path;  // keys with '/' between; numbers are places in lists
    const char* value;
    const char* message;
};

void change(Json& root, std::string path, const std::string& value) {
    Json* at = &root;
    while (true) {
        const size_t slash = path.find('/');
        const std::string key = path.substr(0, slash);
        if (slash == std::string::npos) {
            at->set(key, Json::parse(value).value());
            return;
        }
        at = at->is_array() ? &at->as_array()[std::stoi(key)] : at->find(key);
        path = path.substr(slash + 1);
    }
}

TEST_F(TokenizerFiles, RefusesByField) {
    const Change changes[] = {
        {"model/type", "\"Unigram\"", "model.type"},
        {"model/dropout", "0.1", "model.dropout"},
        {"model/byte_fallback", "true", "model.byte_fallback"},
        {"model/continuing_subword_prefix", "\"##\"", "model.continuing_subword_prefix"},
        {"model/merges", "[\"hello\"]", "model.merges[0]"},
        {"model/merges", "[\"h zz\"]", "model.merges[0]"},
        {"model/merges", "7", "model.merges"},
        {"model/vocab", "{}", "0x00"},
        {"model/vocab/he", "-1", "model.vocab[\"he\"]"},
        {"model/vocab/he", "257", "given twice"},
        {"model/vocab/he", "200000000", "200000000"},
        {"model/ignore_merges", "1", "model.ignore_merges"},
        {"normalizer", "{\"type\": \"NFC\"}", "normalizer"},
        {"normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"}]}",
         "normalizer.normalizers[0]"},
        {"pre_tokenizer", "null", "pre_tokenizer"},
        {"pre_tokenizer", "{\"type\": \"Metaspace\"}", "pre_tokenizer"},
        {"pre_tokenizer/pretokenizers/0/behavior", "\"Sometimes\"",
         "pre_tokenizer.pretokenizers[0].behavior"},
        {"pre_tokenizer/pretokenizers/0/pattern", "{\"Regex\": \"(\"}", "regex"},
        {"pre_tokenizer/pretokenizers/0/pattern", "{}", "pretokenizers[0].pattern"},
        {"pre_tokenizer/pretokenizers/1/add_prefix_space", "true", "add_prefix_space"},
        {"post_processor", "{\"type\": \"BertProcessing\"}", "post_processor"},
        {"post_processor/single", "[{\"SpecialToken\": {\"id\": \"<q>\"}}]", "<q>"},
        {"decoder", "{\"type\": \"WordPiece\"}", "decoder"},
        {"added_tokens/0/single_word", "true", "added_tokens[0].single_word"},
        {"added_tokens/0/id", "\"x\"", "added_tokens[0].id"},
        {"added_tokens/0/id", "256", "\"<s>\" is another token's"},
        {"added_tokens/0/content", "\"<x>\"", "given twice"},
        {"added_tokens/0/lstrip", "2", "added_tokens[0].lstrip"},
    };
    for (const Change& c : changes) {
        Json root = small_file();
        change(root, c.path, c.value);
        auto loaded = load(root);
        ASSERT_FALSE(loaded.ok()) << c.path << " " << c.value;
        EXPECT_THAT(loaded.message(), testing::HasSubstr(c.message)) << c.path;
        EXPECT_THAT(loaded.message(), testing::HasSubstr("tokenizer.json")) << c.path;
    }
}

TEST_F(TokenizerFiles, RefusesWhatIsNoFile) {
    EXPECT_FALSE(Tokenizer::load(dir_ + "/nowhere").ok());
    for (const char* text : {"", "[]", "{", "null", "{\"model\": 3}"}) {
        write("tokenizer.json", text);
        EXPECT_FALSE(Tokenizer::load(dir_).ok()) << text;
    }
}

}  // namespace
}  // namespace aerie
