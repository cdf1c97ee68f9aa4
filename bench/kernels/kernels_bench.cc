// Each CPU kernel beside the machine's limits of the same run.
//
// usage: kernels_bench [linear|attention|experts|rows|pool]... [--threads N] [--isa
// plain|avx2|avx512|amx]
//                      [--cpu-time]   processor time instead of time: one thread on a busy machine
//
// A line gives the best time of several, FLOP/s and bytes/s, and the larger of the two as a share
// of the limit of that many threads. Weights and KV rotate through copies, so that they come from
// where a whole model's would: not from the nearest cache.
#include <cstdio>
#include <ctime>
#include <numeric>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/kernels/limits.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/experts.h"
#include "kernels/isa.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "tensor/tensor.h"

namespace aerie::bench {
namespace {

using namespace kernels;

struct Limits {
    double flops = 0;
    double bytes = 0;
};
Limits limits;
bool use_cpu_time = false;

double now() {
    timespec t;
    clock_gettime(use_cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Runs fn(i) with i counting up for about 0.2 s after a warm-up; the best time of a call, in
// seconds.
template <typename Fn>
double best_time(Fn fn) {
    fn(0);
    double best = 1e9;
    const TimePoint start = Clock::now();
    for (int i = 1; i < 20000 && (i < 4 || seconds_since(start) < 0.2); ++i) {
        const double begin = now();
        fn(i);
        best = std::min(best, now() - begin);
    }
    return best;
}

void report(const std::string& name, double seconds, double flops, double bytes) {
    const double share = std::max(limits.flops > 0 ? flops / seconds / limits.flops : 0,
                                  bytes / seconds / limits.bytes);
    std::printf("%-52s %10.1f us %9.1f GFLOP/s %8.2f GB/s %5.0f %%\n", name.c_str(), seconds * 1e6,
                flops / seconds * 1e-9, bytes / seconds * 1e-9, share * 100);
}

Tensor filled(DType type, int64_t rows, int64_t cols) {
    Tensor t(type, rows, cols);
    for (int64_t i = 0; i < rows * cols; ++i) {
        const float v = static_cast<float>(i * 2654435761u % 1000) * 1e-3f - 0.5f;
        if (type == DType::kBF16)
            t.data<BF16>()[i] = bf16_from_f32(v);
        else
            t.data<float>()[i] = v;
    }
    return t;
}

// As many copies of an FP8 weight as fill `fill_bytes`.
std::vector<LinearWeight> weights(int64_t n, int64_t k, bool keep_fp8, int64_t fill_bytes) {
    std::vector<uint8_t> bytes(static_cast<size_t>(n * k));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 % 120);
    const std::vector<float> scales(static_cast<size_t>((n + 127) / 128 * ((k + 127) / 128)),
                                    1e-3f);
    const auto source = LinearSource::whole(bytes.data(), DType::kF8E4M3, n, k, scales.data());
    std::vector<LinearWeight> result;
    const int64_t copies = std::max<int64_t>(1, fill_bytes / (n * k * (keep_fp8 ? 1 : 2)));
    for (int64_t i = 0; i < copies; ++i)
        result.push_back(pack_linear(source, DType::kBF16, keep_fp8));
    return result;
}

void bench_linear(Stream& stream) {
    struct Shape {
        const char* name;
        int64_t n, k;
    };
    for (const Shape& s : {Shape{"demo q_b", 1536, 256},
                           {"demo o_proj", 256, 1024},
                           {"demo q_a+kv_a", 832, 256},
                           {"demo lm_head", 8192, 256},
                           {"demo W_UK of one head", 512, 128},
                           {"V3 o_proj / 8", 7168, 2048},
                           {"V3 q_b / 8", 3072, 1536}})
        for (bool keep : {false, true}) {
            const auto w = weights(s.n, s.k, keep, 64 << 20);
            for (int64_t m : {1, 4, 16, 512}) {
                const Tensor x = filled(DType::kBF16, m, s.k);
                Tensor y(DType::kBF16, m, s.n);
                const double t = best_time([&](int i) {
                    linear(stream, {x.view(), nullptr, &w[i % w.size()], y.view()});
                });
                report(std::string(s.name) + (keep ? " fp8" : " bf16") + " M=" + std::to_string(m),
                       t, 2.0 * m * s.n * s.k,
                       1.0 * s.n * s.k * (keep ? 1 : 2) + 2.0 * m * (s.k + s.n));
            }
        }
}

void bench_attention(Stream& stream) {
    const int page = 64, width = 576, latent = 512;
    const auto run = [&](const std::string& name, int heads, int batch, int rows, int context) {
        // Six layers' pools, as in the demo.
        const int blocks = (context + page - 1) / page, layers = 6;
        const Tensor pool = filled(DType::kBF16, int64_t{layers} * batch * blocks * page, width);
        std::vector<int32_t> ids(static_cast<size_t>(batch * blocks));
        std::iota(ids.begin(), ids.end(), 0);
        std::vector<MlaSequence> sequences;
        double seen = 0;
        for (int b = 0; b < batch; ++b) {
            sequences.push_back({b * rows, rows, context - rows, ids.data() + b * blocks});
            for (int r = 0; r < rows; ++r) seen += context - rows + r + 1;
        }
        const Tensor q = filled(DType::kBF16, batch * rows, heads * width);
        Tensor out(DType::kBF16, batch * rows, heads * latent);
        const double t = best_time([&](int i) {
            mla_attention(stream,
                          {.q = q.view(),
                           .kv_layer = pool.view().row(int64_t{i % layers} * batch * blocks * page),
                           .page_size = page,
                           .heads = heads,
                           .scale = 0.1f,
                           .sequences = sequences,
                           .out = out.view()});
        });
        report(name, t, 2.0 * heads * seen * (width + latent), 2.0 * batch * context * width);
    };
    for (int context : {128, 1024, 4096, 16384})
        for (int batch : {1, 4, 16})
            if (context * batch <= 65536)
                run("decode 8 heads, context " + std::to_string(context) + ", batch " +
                        std::to_string(batch),
                    8, batch, 1, context);
    run("verify 2 rows, 8 heads, context 4096", 8, 1, 2, 4096);
    run("decode 128 heads, context 4096, batch 1", 128, 1, 1, 4096);
    for (int rows : {512, 2048}) run("prefill " + std::to_string(rows), 8, 1, rows, rows);
    run("prefill last 512 of 4096", 8, 1, 512, 4096);
    run("prefill last 512 of 16384", 8, 1, 512, 16384);
}

void bench_experts(Stream& stream) {
    struct Shape {
        const char* name;
        int64_t hidden, inner;
        int experts, top_k, layers;
    };
    for (const Shape& s : {Shape{"demo", 256, 128, 32, 4, 6}, {"V3", 7168, 2048, 4, 2, 1}})
        for (bool keep : {false, true}) {
            std::vector<std::vector<ExpertWeights>> layers(s.layers);
            for (auto& experts : layers)
                for (int e = 0; e < s.experts; ++e) {
                    experts.emplace_back();
                    experts[e].gate_up = std::move(weights(2 * s.inner, s.hidden, keep, 0)[0]);
                    experts[e].down = std::move(weights(s.hidden, s.inner, keep, 0)[0]);
                }
            for (int64_t rows : {1, 16, 512}) {
                if (s.hidden > 1000 && rows > 16) continue;
                const Tensor x = filled(DType::kBF16, rows, s.hidden);
                Tensor out(DType::kBF16, rows, s.hidden);
                std::vector<int32_t> offsets;
                std::vector<ExpertChoice> choices;
                for (int64_t r = 0; r <= rows; ++r) {
                    offsets.push_back(static_cast<int32_t>(r * s.top_k));
                    for (int j = 0; j < s.top_k && r < rows; ++j)
                        choices.push_back(
                            {static_cast<int32_t>((r * 7 + j * 5) % s.experts), 0.25f});
                }
                ExpertWorkspace workspace;
                const double t = best_time([&](int i) {
                    expert_ffn(stream, {x.view(), offsets.data(), choices.data(),
                                        layers[i % s.layers], out.view(), &workspace});
                });
                const double weight = 3.0 * s.hidden * s.inner;
                const double used = std::min<double>(s.experts, rows * s.top_k);
                report(std::string(s.name) + " experts" + (keep ? " fp8" : " bf16") +
                           " rows=" + std::to_string(rows),
                       t, 2.0 * rows * s.top_k * weight, used * weight * (keep ? 1 : 2));
            }
        }
}

void bench_rows(Stream& stream) {
    for (int64_t rows : {1, 16, 512})
        for (int64_t cols : {256, 7168}) {
            const Tensor weight = filled(DType::kF32, 1, cols);
            Tensor x = filled(DType::kBF16, rows, cols), y(DType::kBF16, rows, cols),
                   p = filled(DType::kF32, rows, cols),
                   gate_up = filled(DType::kBF16, rows, 2 * cols);
            const std::string size = " " + std::to_string(rows) + " x " + std::to_string(cols);
            const ConstView parts[] = {p.view()};
            report("rms_norm" + size, best_time([&](int) {
                       rms_norm(stream, x.view(), weight.data<float>(), 1e-6f, y.view());
                   }),
                   0, 4.0 * rows * cols);
            report("add_partials_and_norm" + size, best_time([&](int) {
                       add_partials_and_norm(stream, x.view(), parts, weight.data<float>(), 1e-6f,
                                             y.view());
                   }),
                   0, 10.0 * rows * cols);
            report("silu_mul" + size,
                   best_time([&](int) { silu_mul(stream, gate_up.view(), y.view()); }), 0,
                   6.0 * rows * cols);
        }
}

void bench_pool(Stream& stream) {
    report("parallel_for of 2 empty calls",
           best_time([&](int) { stream.parallel_for(2, [](int64_t) {}); }), 0, 0);
}

int main_of(int argc, char** argv) {
    int threads = 2;
    std::vector<std::string> what;
    for (int i = 1; i < argc; ++i) {
        const std::string arg = argv[i];
        if (arg == "--threads" && i + 1 < argc) {
            threads = std::stoi(argv[++i]);
        } else if (arg == "--isa" && i + 1 < argc) {
            const std::string name = argv[++i];
            for (Isa isa : {Isa::kPlain, Isa::kAvx2, Isa::kAvx512, Isa::kAmx})
                if (name == name_of(isa)) set_isa(isa);
        } else if (arg == "--cpu-time") {
            use_cpu_time = true;
        } else {
            what.push_back(arg);
        }
    }
    if (what.empty()) what = {"pool", "rows", "linear", "experts", "attention"};
    Stream alone;
    ThreadPool pool({.num_workers = threads - 1});
    Stream stream(&pool);
    const double peak = amx_peak();
    limits = {isa() == Isa::kAmx ? peak * threads : 0, triad_bandwidth(stream)};
    std::printf(
        "%s, %d threads. Triad %.1f GB/s on 1, %.1f on %d; reading 1 MB %.1f, 32 MB %.1f GB/s on "
        "%d; tiles %.2f TFLOP/s a thread\n",
        name_of(isa()), threads, triad_bandwidth(alone) * 1e-9, limits.bytes * 1e-9, threads,
        read_bandwidth(stream, 1 << 20) * 1e-9, read_bandwidth(stream, 32 << 20) * 1e-9, threads,
        peak * 1e-12);
    for (const std::string& w : what) {
        if (w == "linear") bench_linear(stream);
        if (w == "attention") bench_attention(stream);
        if (w == "experts") bench_experts(stream);
        if (w == "rows") bench_rows(stream);
        if (w == "pool") bench_pool(stream);
    }
    return 0;
}

}  // namespace
}  // namespace aerie::bench

int main(int argc, char** argv) { return aerie::bench::main_of(argc, argv); }
