// Each kernel of the card at DeepSeek-V3's shapes, beside what the card could do: the bytes that
// have to be moved over kBandwidth or the products over kProducts, whichever takes longer.
//
// usage: kernels_gpu_bench [part of a name]
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/kernels.h"
#include "tensor/cuda/check.h"
#include "tensor/tensor.h"

namespace aerie::kernels {
namespace {

constexpr double kBandwidth = 4.5e12;        // bytes a second, of one H200
constexpr double kProducts = 770e12;         // bfloat16 operations a second
constexpr int64_t kRotateBytes = 256 << 20;  // several times the second-level cache
constexpr int kHidden = 7168;

std::string wanted;

// Random bytes that are neither NaN nor infinite as bfloat16 or FP8, repeated to any length.
const std::byte* random_bytes(size_t num_bytes) {
    static std::vector<std::byte> bytes;
    if (bytes.size() < num_bytes) {
        constexpr size_t kPart = 4 << 20;
        const size_t old = bytes.size();
        bytes.resize((num_bytes + kPart - 1) / kPart * kPart);
        std::mt19937 random(1);
        for (size_t i = old; i < bytes.size(); ++i) {
            if (i >= kPart)
                bytes[i] = bytes[i - kPart];
            else  // FP8 of either sign up to 1; bfloat16 between about 0.0001 and 1
                bytes[i] = std::byte(((random() & 1) << 7) | 0x38 | (random() & 7));
        }
    }
    return bytes.data();
}

LinearWeight random_weight(int64_t n, int64_t k, DType type) {
    static const std::vector<float> scales(16 << 20, 0.01f);
    const size_t bytes = static_cast<size_t>(n * k) * size_of(type);
    return pack_linear(LinearSource::whole(random_bytes(bytes), type, n, k,
                                           type == DType::kF8E4M3 ? scales.data() : nullptr),
                       DType::kBF16, true, Device::kCuda);
}
Tensor random_rows(DType type, int64_t rows, int64_t cols) {
    Tensor host(type, rows, cols), t(type, rows, cols, Device::kCuda);
    std::mt19937 random(2);
    std::uniform_real_distribution<float> values(-1, 1);
    for (int64_t i = 0; i < rows * cols; ++i) {
        const float v = values(random);
        if (type == DType::kF32)
            host.data<float>()[i] = v;
        else
            host.data<BF16>()[i] = bf16_from_f32(v);
    }
    card::copy_now(t.view().data, host.view().data, host.num_bytes());
    return t;
}

// The time of one call in microseconds: the median of replays of a graph of many. call(i) is the
// i-th; calls that read much should take turns with what they read.
double time_of(Stream& stream, const std::function<void(int)>& call) {
    constexpr int kCalls = 24, kReplays = 7;
    const auto queue = static_cast<cudaStream_t>(stream.queue());
    call(0);  // takes its memory
    card::synchronize(queue);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_CHECK(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < kCalls; ++i) call(i);
    CUDA_CHECK(cudaStreamEndCapture(queue, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t begin, end;
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    std::vector<float> times;
    for (int i = 0; i < kReplays; ++i) {
        CUDA_CHECK(cudaEventRecord(begin, queue));
        CUDA_CHECK(cudaGraphLaunch(exec, queue));
        CUDA_CHECK(cudaEventRecord(end, queue));
        CUDA_CHECK(cudaEventSynchronize(end));
        float ms = 0;
        CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i > 0) times.push_back(ms);
    }
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    CUDA_CHECK(cudaGraphExecDestroy(exec));
    CUDA_CHECK(cudaGraphDestroy(graph));
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2] * 1e3 / kCalls;
}

void report(const std::string& name, int64_t rows, double us, double bytes, double products) {
    const double limit = std::max(bytes / kBandwidth, products / kProducts) * 1e6;
    std::printf("%-28s %6ld %9.1f us  limit %8.1f  %5.1f %%  %6.0f GB/s %6.1f TFLOP/s\n",
                name.c_str(), static_cast<long>(rows), us, limit, 100 * limit / us,
                bytes / us * 1e-3, products / us * 1e-6);
    std::fflush(stdout);
}

void bench_linear(Stream& stream, const std::string& name, int64_t n, int64_t k, DType type,
                  std::initializer_list<int64_t> all_rows) {
    const std::string full = name + (type == DType::kF8E4M3 ? " w8a16" : " bf16");
    if (full.find(wanted) == std::string::npos) return;
    std::vector<LinearWeight> weights;
    int64_t bytes = 0;
    do {
        weights.push_back(random_weight(n, k, type));
        bytes += static_cast<int64_t>(weights.back().num_bytes());
    } while (bytes < kRotateBytes);
    for (int64_t rows : all_rows) {
        const Tensor x = random_rows(DType::kBF16, rows, k);
        Tensor y(DType::kBF16, rows, n, Device::kCuda);
        const double us = time_of(stream, [&](int i) {
            linear(stream, {x.view(), nullptr, &weights[i % weights.size()], y.view()});
        });
        report(full, rows, us,
               static_cast<double>(weights[0].num_bytes() + x.num_bytes() + y.num_bytes()),
               2.0 * rows * n * k);
    }
}

void bench_heads(Stream& stream, int64_t n, int64_t k, DType type, int heads) {
    const std::string name = fmt::format("{} heads {}x{}", heads, n, k);
    if (name.find(wanted) == std::string::npos) return;
    std::vector<LinearWeight> weights;
    for (int i = 0; i < 4 * heads; ++i) weights.push_back(random_weight(n, k, type));
    for (int64_t rows : {1, 16, 64, 256}) {
        const Tensor x = random_rows(DType::kBF16, rows, heads * k);
        Tensor y(DType::kBF16, rows, heads * n, Device::kCuda);
        const double us = time_of(stream, [&](int i) {
            std::vector<LinearTask> tasks;
            for (int h = 0; h < heads; ++h)
                tasks.push_back({x.view().slice_cols(h * k, (h + 1) * k), nullptr,
                                 &weights[i % 4 * heads + h],
                                 y.view().slice_cols(h * n, (h + 1) * n)});
            linear_grouped(stream, tasks);
        });
        report(name, rows, us,
               static_cast<double>(heads * weights[0].num_bytes() + x.num_bytes() + y.num_bytes()),
               2.0 * rows * n * k * heads);
    }
}

void bench_experts(Stream& stream, int num_experts, DType type) {
    const std::string name =
        fmt::format("{} experts {}", num_experts, type == DType::kF8E4M3 ? "w8a16" : "bf16");
    if (name.find(wanted) == std::string::npos) return;
    constexpr int64_t kInner = 2048;
    const ExpertWeights weights{random_weight(num_experts * 2 * kInner, kHidden, type),
                                random_weight(num_experts * kHidden, kInner, type)};
    for (int64_t rows_an_expert : {1, 8, 16, 64, 256}) {
        // Every row has eight of these experts, so that each gets that many rows.
        const int64_t rows = rows_an_expert * num_experts / 8;
        std::vector<int32_t> ids;
        for (int64_t i = 0; i < rows * 8; ++i) ids.push_back(static_cast<int32_t>(i % num_experts));
        const std::vector<float> factors(ids.size(), 0.125f);
        Buffer card_ids(ids.size() * 4, Device::kCuda), card_factors(ids.size() * 4, Device::kCuda);
        card::copy_now(card_ids.data(), ids.data(), ids.size() * 4);
        card::copy_now(card_factors.data(), factors.data(), ids.size() * 4);
        const Tensor x = random_rows(DType::kBF16, rows, kHidden);
        Tensor out(DType::kBF16, rows, kHidden, Device::kCuda);
        const double us = time_of(stream, [&](int) {
            cuda::routed_ffn(stream, {.x = x.view(),
                                      .ids = card_ids.as<int32_t>(),
                                      .weights = card_factors.as<float>(),
                                      .top_k = 8,
                                      .first_expert = 0,
                                      .num_experts = num_experts,
                                      .experts = &weights,
                                      .out = out.view()});
        });
        report(name, rows_an_expert, us,
               static_cast<double>(weights.gate_up.num_bytes() + weights.down.num_bytes()),
               2.0 * rows * 8 * 3 * kInner * kHidden);
    }
}

void bench_small(Stream& stream) {
    for (int64_t rows : {1, 64, 1024}) {
        Tensor x = random_rows(DType::kBF16, rows, kHidden);
        const Tensor part = random_rows(DType::kBF16, rows, kHidden),
                     weight = random_rows(DType::kF32, 1, kHidden),
                     gate_up = random_rows(DType::kBF16, rows, 4096),
                     logits = random_rows(DType::kF32, rows, 256),
                     q = random_rows(DType::kBF16, rows, 128 * 192);
        Tensor y(DType::kBF16, rows, kHidden, Device::kCuda),
            product(DType::kBF16, rows, 2048, Device::kCuda),
            placed(DType::kBF16, rows, 128 * 576, Device::kCuda);
        Buffer ids(static_cast<size_t>(rows) * 8 * 4, Device::kCuda),
            weights(static_cast<size_t>(rows) * 8 * 4, Device::kCuda);
        const RopeTable table({}, 128, Device::kCuda);
        Buffer positions(static_cast<size_t>(rows) * 4, Device::kCuda);
        const double row = static_cast<double>(rows) * kHidden * 2;
        const ConstView parts[] = {part.view()};
        const auto show = [&](const std::string& name, double bytes,
                              std::function<void(int)> call) {
            if (name.find(wanted) != std::string::npos)
                report(name, rows, time_of(stream, call), bytes, 0);
        };
        show("residual + norm", 4 * row, [&](int) {
            add_partials_and_norm(stream, x.view(), parts, weight.data<float>(), 1e-6f, y.view());
        });
        show("norm", 2 * row,
             [&](int) { rms_norm(stream, x.view(), weight.data<float>(), 1e-6f, y.view()); });
        show("silu mul", static_cast<double>(rows) * 6144 * 2,
             [&](int) { silu_mul(stream, gate_up.view(), product.view()); });
        show("gate", static_cast<double>(rows) * (256 + 16) * 4, [&](int) {
            gate(stream, {.logits = logits.view(),
                          .num_groups = 8,
                          .topk_group = 4,
                          .top_k = 8,
                          .ids = ids.as<int32_t>(),
                          .weights = weights.as<float>()});
        });
        show("rope q", static_cast<double>(rows) * 128 * 64 * 4, [&](int) {
            View x_view{const_cast<std::byte*>(q.view().data), DType::kBF16, rows, 128 * 192};
            rope_to(stream, table, {x_view, positions.as<int32_t>(), 128, 192, 128}, placed.view(),
                    576, 512);
        });
    }
}

// The limit is that of reading the logits once.
void bench_draw(Stream& stream) {
    constexpr int kVocab = 129280, kMostRows = 256;
    struct Case {
        const char* name;
        double inverse_temperature, top_p;
        int top_k;
    };
    const Case cases[] = {{"draw greedy", 0, 1, 0},
                          {"draw temperature", 1, 1, 0},
                          {"draw top_p 0.95", 1 / 0.6, 0.95, 0},
                          {"draw top_k 50", 1 / 0.6, 1, 50},
                          {"draw nothing", 0, 1, 0}};
    const auto is_wanted = [](const Case& c) {
        return std::string(c.name).find(wanted) != std::string::npos;
    };
    if (std::none_of(std::begin(cases), std::end(cases), is_wanted)) return;
    Tensor host(DType::kF32, kMostRows, kVocab);
    std::mt19937 random(3);
    std::normal_distribution<float> values(0, 3);
    for (int64_t i = 0; i < kMostRows * kVocab; ++i) host.data<float>()[i] = values(random);
    std::vector<Tensor> logits(3);
    for (Tensor& tensor : logits) {
        tensor = Tensor(DType::kF32, kMostRows, kVocab, Device::kCuda);
        card::copy_now(tensor.view().data, host.view().data, host.num_bytes());
    }
    Buffer card_params(kMostRows * sizeof(DrawParams), Device::kCuda);
    Buffer drawn(kMostRows * sizeof(Drawn), Device::kCuda);
    for (const Case& c : cases) {
        if (!is_wanted(c)) continue;
        std::vector<DrawParams> params(kMostRows);
        for (DrawParams& p : params)
            p = {.noise_base = random() * uint64_t{0x9e3779b97f4a7c15},
                 .inverse_temperature = c.inverse_temperature,
                 .top_p = c.top_p,
                 .top_k = c.top_k,
                 .num_ids = &c == std::end(cases) - 1 ? 0 : kVocab};
        card::copy_now(card_params.data(), params.data(), card_params.size());
        for (int64_t rows : {1, 16, 64, 128, 256}) {
            const double us = time_of(stream, [&](int i) {
                // Few rows lie in the second-level cache, as the product that made them leaves them.
                const int64_t first = i * rows % kMostRows;
                draw(stream, {.logits = logits[i % logits.size()].view().slice_rows(first, first + rows),
                              .params = card_params.as<DrawParams>(),
                              .drawn = drawn.as<Drawn>()});
            });
            report(c.name, rows, us, 4.0 * static_cast<double>(rows) * kVocab, 0);
        }
    }
}

int run() {
    CHECK(card::count() > 0, "no card");
    Stream stream(nullptr, Device::kCuda);
    bench_small(stream);
    bench_draw(stream);
    for (DType type : {DType::kF8E4M3, DType::kBF16}) {
        bench_linear(stream, "q_a+kv_a 2112x7168", 2112, kHidden, type, {1, 16, 64, 256, 1024});
        bench_linear(stream, "q_b 24576x1536", 24576, 1536, type, {1, 16, 64, 256, 1024});
        bench_linear(stream, "o 7168x16384", kHidden, 16384, type, {1, 16, 64, 256, 1024});
    }
    bench_linear(stream, "router 256x7168", 256, kHidden, DType::kBF16, {1, 16, 64, 256, 1024});
    bench_linear(stream, "lm_head 129280x7168", 129280, kHidden, DType::kBF16, {1, 16, 64, 256});
    bench_heads(stream, 512, 128, DType::kBF16, 128);
    bench_heads(stream, 128, 512, DType::kBF16, 128);
    bench_experts(stream, 32, DType::kF8E4M3);
    bench_experts(stream, 32, DType::kBF16);
    return 0;
}

}  // namespace
}  // namespace aerie::kernels

int main(int argc, char** argv) {
    if (argc > 1) aerie::kernels::wanted = argv[1];
    return aerie::kernels::run();
}
