#include <sys/stat.h>

#include <cstring>
#include <limits>

#include "model/tensor_file.h"
#include "model/tensor_source.h"
#include "model/testing/test_checkpoint.h"

namespace aerie::model {
namespace {

using testing::HasSubstr;

const TensorSpec kWeight{"model.w.weight", TensorKind::kWeight, 4, 6};

std::vector<float> ramp(int n) {
    std::vector<float> values(static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i);
    return values;
}

TestFile good_file() {
    return TestFile().add("model.w.weight", "BF16", {4, 6}, bytes_of_floats(ramp(24), DType::kBF16));
}

// Bytes that begin with the given header length.
std::string with_length(uint64_t length, const std::string& rest) {
    std::string out(sizeof length, '\0');
    std::memcpy(out.data(), &length, sizeof length);
    return out + rest;
}

struct Broken {
    const char* name;
    std::map<std::string, std::string> files;
    std::vector<const char*> message;  // parts that must stand in it
};

std::vector<Broken> broken_checkpoints() {
    const char* single = "model.safetensors";
    const char* index = "model.safetensors.index.json";
    const TestFile good = good_file();
    const auto header = [&](const std::string& text) { return good.content(text); };
    const auto tensor = [&](const std::string& entry) {
        return good.content(R"({"model.w.weight":)" + entry + "}");
    };
    return {
        {"empty folder", {}, {"holds neither", index, single}},
        {"empty file", {{single, ""}}, {single, "0 bytes"}},
        {"no room for the length", {{single, "abc"}}, {single, "3 bytes"}},
        {"header length of 2^64-1",
         {{single, with_length(std::numeric_limits<uint64_t>::max(), "{}")}},
         {single, "header length is 18446744073709551615"}},
        {"header length over the limit", {{single, with_length(100'000'001, "{}")}}, {"at most"}},
        {"header longer than the file", {{single, with_length(4096, "{}")}}, {single, "truncated"}},
        {"header is no JSON", {{single, header("{\"a\":")}}, {single, "header", "line 1"}},
        {"header is bad UTF-8", {{single, header("{\"\xff\xfe\":1}")}}, {single, "header"}},
        {"header is an array", {{single, header("[]")}}, {single, "array", "an object"}},
        {"header is deeply nested",
         {{single, header(std::string(100'000, '['))}}, {single, "nested deeper"}},
        {"tensor twice in one file",
         {{single, header(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                          R"("a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})")}},
         {single, "repeated key \"a\""}},
        {"entry is a number", {{single, tensor("7")}}, {"model.w.weight", "integer", "an object"}},
        {"no dtype",
         {{single, tensor(R"({"shape":[4,6],"data_offsets":[0,48]})")}}, {"model.w.weight", "dtype"}},
        {"no shape",
         {{single, tensor(R"({"dtype":"BF16","data_offsets":[0,48]})")}}, {"model.w.weight", "shape"}},
        {"no offsets",
         {{single, tensor(R"({"dtype":"BF16","shape":[4,6]})")}}, {"model.w.weight", "data_offsets"}},
        {"one offset",
         {{single, tensor(R"({"dtype":"BF16","shape":[4,6],"data_offsets":[0]})")}},
         {"data_offsets has 1 numbers, expected 2"}},
        {"offsets run backwards",
         {{single, tensor(R"({"dtype":"BF16","shape":[4,6],"data_offsets":[48,0]})")}},
         {"model.w.weight", "backwards"}},
        {"negative offset",
         {{single, tensor(R"({"dtype":"BF16","shape":[4,6],"data_offsets":[-48,0]})")}},
         {"model.w.weight", "-48"}},
        {"offset beyond 64 bits",
         {{single, tensor(R"({"dtype":"BF16","shape":[4,6],"data_offsets":[0,18446744073709551616]})")}},
         {"model.w.weight", "data_offsets"}},
        {"fractional extent",
         {{single, tensor(R"({"dtype":"BF16","shape":[4.5,6],"data_offsets":[0,48]})")}},
         {"model.w.weight", "4.5"}},
        {"extents overflow",
         {{single, tensor(R"({"dtype":"BF16","shape":[4611686018427387904,4611686018427387904],)"
                          R"("data_offsets":[0,48]})")}},
         {"model.w.weight", "more than 2^64"}},
        {"fewer bytes than the shape",
         {{single, tensor(R"({"dtype":"BF16","shape":[4,6],"data_offsets":[0,46]})")}},
         {"model.w.weight", "has 46 bytes", "needs 48"}},
        {"file cut off",
         {{single, good.content().substr(0, good.content().size() - 1)}},
         {single, "model.w.weight", "truncated"}},
        {"tensors overlap",
         {{single, header(R"({"model.w.weight":{"dtype":"BF16","shape":[4,6],"data_offsets":[0,48]},)"
                          R"("b":{"dtype":"BF16","shape":[1],"data_offsets":[46,48]}})")}},
         {single, "tensor b overlaps tensor model.w.weight"}},
        {"index is no JSON", {{index, "{"}}, {index, "line 1"}},
        {"index without weight_map", {{index, "{}"}}, {index, "weight_map", "null"}},
        {"index with empty weight_map", {{index, R"({"weight_map":{}})"}}, {index, "empty"}},
        {"index names a number",
         {{index, R"({"weight_map":{"model.w.weight":3}})"}}, {index, "model.w.weight", "found 3"}},
        {"index leaves the folder",
         {{index, R"({"weight_map":{"model.w.weight":"../x.safetensors"}})"}},
         {index, "model.w.weight", "in this folder"}},
        {"indexed file is absent",
         {{index, R"({"weight_map":{"model.w.weight":"a.safetensors"}})"}},
         {"a.safetensors", "cannot open"}},
        {"indexed tensor is absent",
         {{index, R"({"weight_map":{"model.w.weight":"a.safetensors"}})"},
          {"a.safetensors", TestFile().add("other", "F32", {1}).content()}},
         {"a.safetensors", "model.w.weight", "is missing", index}},
        {"tensor in two files",
         {{index, R"({"weight_map":{"model.w.weight":"a.safetensors","x":"b.safetensors"}})"},
          {"a.safetensors", good.content()},
          {"b.safetensors", good.content()}},
         {"b.safetensors", "model.w.weight", "is also in", "a.safetensors"}},
        {"tensor with and without prefix",
         {{single, good_file().add("language_model.model.w.weight", "BF16", {4, 6}).content()}},
         {"language_model.model.w.weight", "is also in"}},
        {"tensor is missing",
         {{single, TestFile().add("other", "F32", {1}).content()}}, {"model.w.weight", "is missing"}},
        {"other shape",
         {{single, TestFile().add("model.w.weight", "BF16", {6, 4}).content()}},
         {single, "model.w.weight", "shape is [6, 4], expected [4, 6]"}},
        {"other rank",
         {{single, TestFile().add("model.w.weight", "BF16", {24}).content()}},
         {"model.w.weight", "shape is [24], expected [4, 6]"}},
        {"other type",
         {{single, TestFile().add("model.w.weight", "F16", {4, 6}).content()}},
         {single, "model.w.weight", "dtype is F16, expected F8_E4M3, BF16 or F32"}},
    };
}

Status open_and_load(const std::string& folder, ReadMode mode, const TensorSpec& spec) {
    auto source = open_checkpoint(folder, mode);
    if (!source) return source.error();
    auto bytes = (*source)->load(spec, 0, spec.rows);
    if (!bytes) return bytes.error();
    return {};
}

TEST(Checkpoint, BrokenOnesAreNamed) {
    for (const Broken& broken : broken_checkpoints()) {
        const TestFolder folder;
        for (const auto& [name, content] : broken.files) folder.write(name, content);
        for (ReadMode mode : {ReadMode::kMap, ReadMode::kRead}) {
            const Status status = open_and_load(folder.path(), mode, kWeight);
            ASSERT_FALSE(status.ok()) << broken.name;
            for (const char* part : broken.message)
                EXPECT_THAT(status.message(), HasSubstr(part)) << broken.name;
        }
    }
}

TEST(Checkpoint, EveryBitFlipOfAHeaderIsAnErrorOrHarmless) {
    const std::string good = good_file().add("b", "F32", {3}).content();
    const size_t header_end = good.size() - 48 - 12;
    for (size_t byte = 0; byte < header_end; ++byte) {
        for (int bit = 0; bit < 8; ++bit) {
            std::string bad = good;
            bad[byte] = static_cast<char>(bad[byte] ^ (1 << bit));
            const TestFolder folder;
            folder.write("model.safetensors", bad);
            // Must neither crash nor read outside the file; some flips only rename a tensor.
            (void)open_and_load(folder.path(), ReadMode::kMap, kWeight);
        }
    }
}

// Bit patterns of elements as float.
float value_at(const TensorBytes& bytes, int64_t i) {
    if (bytes.dtype == DType::kBF16) return f32_from_bf16(static_cast<const BF16*>(bytes.data)[i]);
    if (bytes.dtype == DType::kF8E4M3)
        return f32_from_f8e4m3(static_cast<const uint8_t*>(bytes.data)[i]);
    return static_cast<const float*>(bytes.data)[i];
}

TEST(Checkpoint, RowsAreReadInEveryTypeAndMode) {
    TestFile file = good_file();
    file.add("odd", "F8_E4M3", {1}, "\x38");  // what follows has no alignment
    file.add("f", "F32", {2, 3}, bytes_of_floats(ramp(6), DType::kF32));
    file.add("language_model.p", "BF16", {3}, bytes_of_floats(ramp(3), DType::kBF16));
    const TestFolder folder;
    folder.write("model.safetensors", file.content());
    for (ReadMode mode : {ReadMode::kMap, ReadMode::kRead, ReadMode::kAuto}) {
        auto source = open_checkpoint(folder.path(), mode);
        ASSERT_TRUE(source.ok()) << source.message();
        const auto element = [&](TensorSpec spec, int64_t begin, int64_t end, int64_t i) {
            auto bytes = (*source)->load(spec, begin, end);
            EXPECT_TRUE(bytes.ok()) << bytes.message();
            EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes->data) % size_of(bytes->dtype), 0u);
            return value_at(*bytes, i);
        };
        EXPECT_EQ(element(kWeight, 2, 3, 13), 13.0f);
        EXPECT_EQ(element({"odd", TensorKind::kWeight, 1, 0}, 0, 1, 0), 1.0f);
        EXPECT_EQ(element({"f", TensorKind::kScale, 2, 3}, 1, 2, 5), 5.0f);
        EXPECT_EQ(element({"p", TensorKind::kPlain, 3, 0}, 0, 3, 2), 2.0f);
        EXPECT_TRUE((*source)->has("p"));
        EXPECT_FALSE((*source)->has("language_model.p"));
    }
}

TEST(Checkpoint, CopiesAndTablesAreIgnored) {
    TestFile file = good_file();
    for (int copy = 0; copy < 2; ++copy) {
        const std::string prefix = copy == 0 ? "" : "language_model.";
        file.add(prefix + "model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {2});
        file.add(prefix + "model.layers.6.embed_tokens.weight", "BF16", {2, 2});
        file.add(prefix + "model.layers.6.shared_head.head.weight", "BF16", {2, 2});
    }
    const TestFolder folder;
    folder.write("model.safetensors", file.content());
    auto source = open_checkpoint(folder.path(), ReadMode::kAuto);
    ASSERT_TRUE(source.ok()) << source.message();
    EXPECT_FALSE((*source)->has("model.layers.6.embed_tokens.weight"));
    EXPECT_TRUE((*source)->has("model.w.weight"));
}

TEST(Checkpoint, TheNumberOfLayersIsThatOfItsTensors) {
    TestFile file = good_file();
    for (const char* name : {"0.input_layernorm", "1.input_layernorm", "2.input_layernorm", "2.eh_proj"})
        file.add(fmt::format("model.layers.{}.weight", name), "F32", {2});
    const TestFolder folder;
    folder.write("model.safetensors", file.content());
    auto source = open_checkpoint(folder.path(), ReadMode::kAuto);
    ASSERT_TRUE(source.ok()) << source.message();
    EXPECT_TRUE(check_num_layers(**source, 2).ok());
    EXPECT_THAT(check_num_layers(**source, 3).message(),
                HasSubstr("num_hidden_layers: found 3, expected 2"));
    EXPECT_THAT(check_num_layers(**source, 1).message(),
                HasSubstr("num_hidden_layers: found 1, expected more"));
}

TEST(DummySource, ValuesDependOnSeedNameAndPlaceOnly) {
    const TensorSpec spec{"model.layers.0.x.weight", TensorKind::kWeight, 64, 300};
    const auto values = [&](uint64_t seed, bool quantised, const TensorSpec& s, int64_t begin,
                            int64_t end) {
        auto bytes = make_dummy_source(seed, quantised)->load(s, begin, end);
        std::vector<float> out;
        for (int64_t i = begin * s.row_elements(); i < end * s.row_elements(); ++i)
            out.push_back(value_at(*bytes, i));
        return out;
    };
    for (bool quantised : {false, true}) {
        const auto all = values(1, quantised, spec, 0, 64);
        const auto part = values(1, quantised, spec, 10, 20);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 10 * 300));
        EXPECT_NE(all, values(2, quantised, spec, 0, 64));
        TensorSpec other = spec;
        other.name = "model.layers.1.x.weight";
        EXPECT_NE(all, values(1, quantised, other, 0, 64));
        double square = 0;
        for (float value : all) square += double{value} * value;
        const float scale =
            quantised ? values(1, true, {"s", TensorKind::kScale, 1, 3}, 0, 1)[0] : 1.0f;
        EXPECT_NEAR(square / static_cast<double>(all.size()) * scale * scale * 300, 1.0, 0.4);
    }
    EXPECT_EQ(values(1, true, {"norm.weight", TensorKind::kPlain, 5, 0}, 0, 5),
              std::vector<float>(5, 1.0f));
}

}  // namespace
}  // namespace aerie::model
