// The card's kernels that stand on libraries, each beside the card's limit: the time it would take
// if it moved its bytes, or did its operations, at the card's measured rates (one H200: 4.6 TB/s,
// bf16 770 and FP8 1351 TFLOP/s). Each time is the median of replays of a graph of many launches
// over more data than the caches hold. usage: library_bench [mla|prompts|dense|tiles|experts [rows
// an expert]]
#include <cuda_runtime.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/expanded.h"
#include "kernels/cuda/fp8_gemm.h"
#include "kernels/cuda/fp8_ops.h"
#include "kernels/cuda/fp8_tile.h"
#include "kernels/linear.h"
#include "tensor/cuda/check.h"
#include "tensor/tensor.h"

using namespace aerie;
using namespace aerie::kernels;
using namespace aerie::kernels::cuda;

namespace {

constexpr double kBytes = 4.6e12, kBf16 = 770e12, kFp8 = 1351e12;  // a second

double limit_us(double bytes, double operations, double rate) {
    return std::max(bytes / kBytes, operations / rate) * 1e6;
}

// Microseconds of one fn(i), i in [0, launches).
double time_us(Stream& stream, int launches, const std::function<void(int)>& fn) {
    const auto queue = static_cast<cudaStream_t>(stream.queue());
    for (int i = 0; i < launches; ++i) fn(i);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    CUDA_CHECK(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches; ++i) fn(i);
    CUDA_CHECK(cudaStreamEndCapture(queue, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&ready, graph, 0));
    cudaEvent_t begin = nullptr, end = nullptr;
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    // The clocks rise under load, within some 10 ms.
    float warm_ms = 0;
    std::vector<float> times;
    while (times.size() < 9) {
        CUDA_CHECK(cudaEventRecord(begin, queue));
        CUDA_CHECK(cudaGraphLaunch(ready, queue));
        CUDA_CHECK(cudaEventRecord(end, queue));
        card::synchronize(queue);
        float ms = 0;
        CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (warm_ms > 30) times.push_back(ms * 1000 / static_cast<float>(launches));
        warm_ms += ms;
    }
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    CUDA_CHECK(cudaGraphExecDestroy(ready));
    CUDA_CHECK(cudaGraphDestroy(graph));
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
}

// Random bfloat16 in [−1, 1): 8 MiB of it, again and again.
void fill(Tensor& t) {
    static const std::vector<BF16> pattern = [] {
        std::vector<BF16> r(4 << 20);
        std::mt19937 random(1);
        for (BF16& v : r)
            v = bf16_from_f32(static_cast<float>(static_cast<int32_t>(random())) / 2147483648.0f);
        return r;
    }();
    const size_t period = pattern.size() * sizeof(BF16);
    for (size_t at = 0; at < t.num_bytes(); at += period)
        card::copy_now(t.view().data + at, pattern.data(), std::min(period, t.num_bytes() - at));
}

Tensor random_rows(int64_t rows, int64_t cols) {
    Tensor r(DType::kBF16, rows, cols, Device::kCuda);
    fill(r);
    return r;
}

LinearWeight random_weight(int64_t n, int64_t k) {
    static std::vector<uint8_t> values;
    static std::vector<float> scales;
    if (static_cast<int64_t>(values.size()) < n * k) {
        const size_t old = values.size();
        values.resize(n * k);
        std::minstd_rand random(2);
        for (size_t i = old; i < values.size() && i < (16u << 20); ++i)
            values[i] = static_cast<uint8_t>(random() >> 8) & 0xf7;  // not NaN
        for (size_t i = std::max<size_t>(old, 16u << 20); i < values.size(); i += 16u << 20)
            std::memcpy(&values[i], values.data(), std::min<size_t>(16u << 20, values.size() - i));
        scales.resize(values.size() / 128 / 64 + 1, 1e-3f);
    }
    return kernels::pack_linear(
        LinearSource::whole(values.data(), DType::kF8E4M3, n, k, scales.data()), DType::kBF16, true,
        Device::kCuda);
}

void print_head(const char* what, const char* rate) {
    fmt::print("\n{:<34} {:>9} {:>8} {:>9} {:>9} {:>6}\n", what, "us", rate, "TFLOP/s", "limit us",
               "ratio");
}
void print_line(const std::string& what, double us, double bytes, double operations, double rate) {
    const double limit = limit_us(bytes, operations, rate);
    fmt::print("{:<34} {:>9.1f} {:>8.0f} {:>9.0f} {:>9.1f} {:>6.2f}\n", what, us, bytes / us / 1e3,
               operations / us / 1e6, limit, us / limit);
    std::fflush(stdout);
}

constexpr int kPage = 64, kWidth = 576;

MlaArgs attention_of(int heads, ConstView q, const void* kv, const MlaStep& step, View out) {
    MlaArgs a;
    a.q = q;
    a.kv_layer = kv;
    a.page_size = kPage;
    a.heads = heads;
    a.scale = 0.07f;
    a.step = &step;
    a.out = out;
    return a;
}

void bench_decode(Stream& stream, int heads, int requests, int tokens, bool deterministic) {
    const int blocks = requests * tokens / kPage;
    const double bytes = double(requests) * tokens * kWidth * 2;
    const int sets = std::clamp(static_cast<int>(1e9 / bytes), 1, 16);
    const Tensor kv = random_rows(int64_t{sets} * blocks * kPage, kWidth);
    const Tensor q = random_rows(requests, int64_t{heads} * kWidth);
    Tensor out(DType::kBF16, requests, int64_t{heads} * 512, Device::kCuda);
    std::vector<int32_t> table(blocks);
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(7));
    std::vector<MlaSequence> sequences;
    for (int i = 0; i < requests; ++i)
        sequences.push_back({i, 1, tokens - 1, &table[i * (tokens / kPage)]});
    MlaStep step({.max_rows = requests, .max_blocks = blocks},
                 {.heads = heads, .page_size = kPage, .deterministic = deterministic});
    step.prepare(stream, sequences);
    const double us = time_us(stream, 16, [&](int i) {
        const void* set = kv.view().row(int64_t{i % sets} * blocks * kPage);
        kernels::mla_attention(stream, attention_of(heads, q.view(), set, step, out.view()));
    });
    print_line(fmt::format("{} x {} x {}{}", heads, requests, tokens,
                           deterministic ? ", deterministic" : ""),
               us, bytes, 2.0 * requests * heads * tokens * 1088, kBf16);
}

// A prompt's rows after `before` tokens, absorbed.
void bench_chunk(Stream& stream, int rows, int before) {
    constexpr int kHeads = 128;
    const Tensor kv = random_rows(rows + before, kWidth), q = random_rows(rows, kHeads * kWidth);
    Tensor out(DType::kBF16, rows, kHeads * 512, Device::kCuda);
    std::vector<int32_t> table((rows + before) / kPage);
    std::iota(table.begin(), table.end(), 0);
    const MlaSequence sequence{0, rows, before, table.data()};
    MlaStep step({.max_rows = rows, .max_blocks = static_cast<int64_t>(table.size())},
                 {.heads = kHeads, .page_size = kPage});
    step.prepare(stream, {&sequence, 1});
    const double us = time_us(stream, 2, [&](int) {
        kernels::mla_attention(stream,
                               attention_of(kHeads, q.view(), kv.view().data, step, out.view()));
    });
    print_line(fmt::format("128 heads, {} rows after {}", rows, before), us, 0,
               2.0 * kHeads * rows * (before + (rows + 1) / 2.0) * 1088, kBf16);
}

double median(std::vector<double> times) {
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
}

// A prompt's rows after `before` tokens, with keys and values per head: the attention alone, over
// keys and values that are there, and all of it, in turns.
void bench_expanded(int heads, int rows, int before) {
    const int tokens = rows + before;
    const int64_t piece = std::min(tokens, 16384);
    Stream stream(nullptr, Device::kCuda);
    stream.set_quantises_rows(true);
    const Tensor pool = random_rows(tokens, kWidth), q = random_rows(rows, heads * 192);
    const LinearWeight kv_b = random_weight(heads * 256, 512);
    Tensor out(DType::kBF16, rows, heads * 128, Device::kCuda);
    std::vector<int32_t> table(tokens / kPage);
    std::iota(table.begin(), table.end(), 0);
    const MlaSequence sequence{0, rows, before, table.data()};
    MlaStep step({.max_rows = rows, .max_blocks = std::ssize(table), .piece_tokens = piece},
                 {.heads = heads, .page_size = kPage});
    step.prepare(stream, {}, 0, {&sequence, 1});
    const double operations = 2.0 * heads * rows * (before + (rows + 1) / 2.0) * 320;
    const std::string name = fmt::format("{} heads, {} rows up to {}", heads, rows, tokens);
    const auto all = [&](int) {
        kernels::mla_attention(stream, {.q = q.view(),
                                        .kv_layer = pool.view().data,
                                        .page_size = kPage,
                                        .heads = heads,
                                        .scale = 0.1f,
                                        .sequences = {},
                                        .step = &step,
                                        .expand_kv = &kv_b,
                                        .out = out.view()});
    };
    const Tensor kv = random_rows(piece, heads * 256);
    std::vector<ExpandPlan::Tile> tiles;
    for (int row = rows - 128; row >= 0; row -= 128)
        tiles.push_back({row, 128, 0, before + row + 128});
    Buffer on_card(tiles.size() * sizeof(tiles[0]), Device::kCuda);
    card::copy_now(on_card.data(), tiles.data(), on_card.size());
    Tensor lse(DType::kF32, rows, heads, Device::kCuda);
    const auto attention = [&](int) {
        attend_tiles(stream, {.q = q.view(),
                              .kv = kv.view(),
                              .k_pe = pool.view().slice_rows(0, piece).slice_cols(512, kWidth),
                              .tiles = on_card.as<ExpandPlan::Tile>(),
                              .num_tiles = static_cast<int>(tiles.size()),
                              .heads = heads,
                              .scale = 0.1f,
                              .out = out.view(),
                              .lse = lse.data<float>()});
    };
    std::vector<double> all_us, attention_us;
    for (int turn = 0; turn < 3; ++turn) {
        all_us.push_back(time_us(stream, 4, all));
        if (tokens == piece) attention_us.push_back(time_us(stream, 4, attention));
    }
    print_line(name + ", all", median(all_us), 0, operations, kBf16);
    if (tokens == piece)
        print_line(name + ", attention", median(attention_us), 0, operations, kBf16);
}

void bench_prompts() {
    print_head("prompts, keys and values per head", "GB/s");
    for (int heads : {128, 32, 8})
        for (int tokens : {4096, 16384, 32768}) bench_expanded(heads, 4096, tokens - 4096);
}

void bench_mla() {
    print_head("MLA decode, heads, requests, tokens", "GB/s");
    Stream stream(nullptr, Device::kCuda);
    for (bool deterministic : {false, true})
        for (int heads : {128, 32})
            for (const auto& [requests, tokens] :
                 {std::pair{1, 4096}, {16, 4096}, {64, 4096}, {128, 4096}, {64, 32768}})
                bench_decode(stream, heads, requests, tokens, deterministic);
    bench_chunk(stream, 4096, 0);
    bench_chunk(stream, 2048, 30720);
}

struct QuantisedRows {
    Buffer memory;
    Fp8Rows rows;
    QuantisedRows(Stream& stream, int64_t num_rows, int64_t cols)
        : memory(Fp8Rows::num_bytes(num_rows, cols), Device::kCuda),
          rows(Fp8Rows::at(memory.data(), num_rows, cols)) {
        const Tensor x = random_rows(num_rows, cols);
        fp8_quantise(stream, x.view(), rows);
        card::synchronize(stream.queue());
    }
};

struct DenseShape {
    const char* name;
    int64_t n, k;
};
constexpr DenseShape kDense[] = {
    {"o_proj", 7168, 16384}, {"q_b", 24576, 1536}, {"q_a_kv_a", 2112, 7168}};

std::vector<LinearWeight> copies_of(const DenseShape& s) {
    std::vector<LinearWeight> r;
    for (int64_t bytes = 0; bytes < int64_t{300} << 20; bytes += s.n * s.k)
        r.push_back(random_weight(s.n, s.k));
    return r;
}

void bench_dense(bool every_tile) {
    print_head("FP8 dense", "GB/s");
    Stream stream(nullptr, Device::kCuda);
    for (const DenseShape& s : kDense) {
        const std::vector<LinearWeight> weights = copies_of(s);
        for (int64_t m : {1, 16, 64, 128, 256, 1024, 4096}) {
            const QuantisedRows x(stream, m, s.k);
            Tensor y(DType::kBF16, m, s.n, Device::kCuda);
            const double bytes = double(s.n) * s.k + m * s.k + 2.0 * m * s.n;
            const double operations = 2.0 * m * s.n * s.k;
            const auto time = [&](int tile) {
                return time_us(stream, 12, [&](int i) {
                    fp8_gemm_with_tile(stream, tile, x.rows, weights[i % weights.size()], y.view());
                });
            };
            const int chosen = fp8_dense_tile(m, s.n, s.k);
            print_line(fmt::format("{}, {} rows", s.name, m), time(chosen), bytes, operations,
                       kFp8);
            if (!every_tile) continue;
            for (size_t t = 0; t < fp8_dense_tiles().size(); ++t)
                fmt::print("  {}x{}{} {:.1f}", fp8_dense_tiles()[t].block_m,
                           fp8_dense_tiles()[t].block_n, static_cast<int>(t) == chosen ? "*" : "",
                           time(static_cast<int>(t)));
            fmt::print("\n");
        }
    }
    const Tensor x = random_rows(64, 7168);
    const QuantisedRows q(stream, 64, 7168);
    fmt::print("quantising 64 x 7168: {:.1f} us\n",
               time_us(stream, 50, [&](int) { fp8_quantise(stream, x.view(), q.rows); }));
}

void bench_experts(int only) {
    constexpr int kExperts = 32, kTopK = 8;
    constexpr int64_t kHidden = 7168, kInner = 2048;
    print_head("FP8 grouped, 32 experts", "GB/s");
    Stream stream(nullptr, Device::kCuda);
    const ExpertWeights weights{random_weight(kExperts * 2 * kInner, kHidden),
                                random_weight(kExperts * kHidden, kInner)};
    for (int each : {1, 16, 64, 128, 256, 1024}) {
        if (only > 0 && each != only) continue;
        Fp8Groups groups{.num_groups = kExperts, .tile_rows = Fp8Groups::tile_rows_for(each)};
        std::vector<int32_t> ends(Fp8Groups::padded_groups(kExperts));
        const int apart = (each + groups.tile_rows - 1) / groups.tile_rows * groups.tile_rows;
        for (int g = 0; g < static_cast<int>(ends.size()); ++g)
            ends[g] = g < kExperts ? g * apart + each : kExperts * apart;
        Buffer on_card(ends.size() * sizeof(int32_t), Device::kCuda);
        card::copy_now(on_card.data(), ends.data(), on_card.size());
        groups.ends = on_card.as<int32_t>();
        double sum = 0;
        for (const auto& [name, w, n, k] :
             {std::tuple{"gate_up", &weights.gate_up, 2 * kInner, kHidden},
              {"down", &weights.down, kHidden, kInner}}) {
            const QuantisedRows x(stream, int64_t{kExperts} * apart, k);
            Tensor y(DType::kBF16, int64_t{kExperts} * apart, n, Device::kCuda);
            const double us = time_us(
                stream, 6, [&](int) { fp8_gemm_grouped(stream, x.rows, *w, groups, y.view()); });
            sum += us;
            print_line(fmt::format("{}, {} rows each", name, each), us,
                       double(kExperts) * (n * k + each * (k + 2.0 * n)),
                       2.0 * kExperts * each * n * k, kFp8);
        }
        const int64_t rows = int64_t{kExperts} * each / kTopK;
        std::vector<int32_t> ids(rows * kTopK);
        std::vector<float> shares(ids.size(), 0.125f);
        for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 5 % kExperts);
        Buffer card_ids(ids.size() * 4, Device::kCuda), card_shares(ids.size() * 4, Device::kCuda);
        card::copy_now(card_ids.data(), ids.data(), card_ids.size());
        card::copy_now(card_shares.data(), shares.data(), card_shares.size());
        const Tensor x = random_rows(rows, kHidden);
        Tensor out(DType::kBF16, rows, kHidden, Device::kCuda);
        const double us = time_us(stream, 6, [&](int) {
            combine_lines(stream,
                          fp8_routed_lines(stream, {.x = x.view(),
                                                    .ids = card_ids.as<int32_t>(),
                                                    .weights = card_shares.as<float>(),
                                                    .top_k = kTopK,
                                                    .first_expert = 0,
                                                    .num_experts = kExperts,
                                                    .experts = &weights,
                                                    .out = {}}),
                          {}, out.view());
        });
        fmt::print("the whole expert side, {} rows each: {:.1f} us, {:.3f} of its two products\n",
                   each, us, us / sum);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    if (card::count() == 0) {
        fmt::print("no card\n");
        return 1;
    }
    if (what.empty() || what == "mla") bench_mla();
    if (what.empty() || what == "prompts") bench_prompts();
    if (what.empty() || what == "dense") bench_dense(false);
    if (what == "tiles") bench_dense(true);
    if (what.empty() || what == "experts") bench_experts(argc > 2 ? std::atoi(argv[2]) : 0);
    return 0;
}
