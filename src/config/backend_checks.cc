#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "config/check_context.h"
#include "tensor/card.h"

namespace aerie {
namespace {

// The cards are not this machine's, or the launcher has looked at them.
bool assumes_cards(const CommandLine& line) { return line.card_memory > 0 || line.card_part > 0; }

void choose_device(Config& config, CheckContext& c, const CommandLine& command_line,
                   const Machine& machine) {
    if (config.device == DeviceChoice::kAuto) {
        const bool gpus = machine.num_gpus > 0 || assumes_cards(command_line);
        config.device = gpus ? DeviceChoice::kCuda : DeviceChoice::kCpu;
    } else if (config.device == DeviceChoice::kCuda && machine.num_gpus == 0 &&
               !assumes_cards(command_line)) {
        c.fail("bad value: --device cuda; {}, expected auto or cpu",
               card::built() ? "no GPU of compute capability 9.0 is here, or its driver is too old" : "this build has no CUDA kernels");
    }
    const int64_t wanted = std::ssize(nodes_here(config)) * int64_t{config.cluster.gpus_per_node};
    if (config.device == DeviceChoice::kCuda && !assumes_cards(command_line) &&
        machine.num_gpus > 0 && wanted > machine.num_gpus && !config.share_cards) {
        c.fail(
            "bad value: the nodes of this machine want {} cards, {} are here; expected fewer nodes "
            "or gpus_per_node, or --share-cards",
            wanted, machine.num_gpus);
    }
}

// auto → what runs; what cannot run is refused or, with --device cpu, replaced.
void choose_comm(Config& config, CheckContext& c, const char* key, CommBackend& backend,
                 bool explicit_cpu) {
    const bool cpu = config.device == DeviceChoice::kCpu;
    if (backend == CommBackend::kAuto) backend = CommBackend::kUcx;
    if (cpu && backend == CommBackend::kNccl) {
        if (explicit_cpu) {
            c.warn("{}: nccl needs GPUs; with --device cpu ucx is used",
                   c.say("ae_separation", key));
            backend = CommBackend::kUcx;
        } else {
            c.fail(
                "bad value: {}: nccl needs GPUs and this machine has none; expected auto or ucx, "
                "or --device cpu",
                c.say("ae_separation", key));
        }
    } else if (backend == CommBackend::kNccl) {
        c.warn("{}: there is no NCCL backend yet; ucx carries the messages, through host memory",
               c.say("ae_separation", key));
        backend = CommBackend::kUcx;
    } else if (backend == CommBackend::kGloo && !cpu) {
        c.warn("gloo stages GPU data through host memory: {}", c.say("ae_separation", key));
    }
    if (backend == CommBackend::kGloo && c.sources.given("cluster", "port_range")) {
        c.warn("{} and {}: Gloo's connections take any free port; the range holds for the others",
               c.say("ae_separation", key), c.say("cluster", "port_range"));
    }
}

void choose_kernels(Config& config, CheckContext& c) {
    Settings& s = config.settings;
    const bool cpu = config.device == DeviceChoice::kCpu;
    if (cpu) {
        if (s.attention_backend == AttentionBackend::kFlashinfer) {
            c.warn("{} is a CUDA backend; cpu is used", c.say("", "attention_backend"));
        }
        if (s.expert_backend == ExpertBackend::kCutlass ||
            s.expert_backend == ExpertBackend::kDeepGemm) {
            c.warn("{} is a CUDA backend; cpu is used", c.say("", "expert_backend"));
        }
        s.attention_backend = AttentionBackend::kCpu;
        s.expert_backend = ExpertBackend::kCpu;
    } else {
        if (s.attention_backend == AttentionBackend::kAuto) {
            s.attention_backend = AttentionBackend::kFlashinfer;
        }
        if (s.expert_backend == ExpertBackend::kAuto) s.expert_backend = ExpertBackend::kDeepGemm;
        c.out.notes.push_back(
            fmt::format("expert_backend = {}: cutlass and deep_gemm both name the "
                        "CUTLASS-based DeepGEMM kernels",
                        name_of(s.expert_backend)));
    }
    if (!s.enable_deterministic_inference) s.enable_deterministic_inference = cpu;
    if (cpu && config.cluster.network == Network::kRdma) {
        c.warn("{}: on CPUs tcp is used", c.say("cluster", "network"));
        config.cluster.network = Network::kTcp;
    }
}

// Known words whose feature does not exist yet.
void check_features(Config& config, CheckContext& c) {
    Settings& s = config.settings;
    AeSeparation& ae = config.ae_separation;
    if (s.kv_cache_dtype == KvCacheDtype::kFp8E4m3) {
        c.fail("bad value: {}: an FP8 KV cache is not built; expected auto or bf16",
               c.say("", "kv_cache_dtype"));
    }
    if (s.kv_cache_dtype == KvCacheDtype::kBf16 && config.model.dtype == ComputeDtype::kFloat32) {
        c.fail("bad value: {} with {}; expected auto: the KV cache has the compute type",
               c.say("", "kv_cache_dtype"), c.say("model", "dtype"));
    }
    if (ae.exchange_dtype == ExchangeDtype::kFp8) {
        c.fail("bad value: {}: an FP8 exchange is not built; expected auto",
               c.say("ae_separation", "exchange_dtype"));
    }
    if (ae.kv_transfer == KvTransfer::kActive && c.sources.given("ae_separation", "kv_lease_s")) {
        c.warn("{}: with {} nothing is leased; it plays no part", c.say("ae_separation", "kv_lease_s"),
               c.say("ae_separation", "kv_transfer"));
    }
    for (const char* key : {"hicache_size_gb", "hicache_path"}) {
        if (s.disable_radix_cache && c.sources.given("", key)) {
            c.warn("{}: it plays no part with {}", c.say("", key),
                   c.say("", "disable_radix_cache"));
        }
    }
}

// Both keys or none, and a folder of this machine that takes a replica's files.
void check_hicache_file(const Config& config, CheckContext& c, const CommandLine& command_line) {
    const Settings& s = config.settings;
    const std::string &path = s.hicache_path, said = c.say("", "hicache_path");
    if (path.empty() != (s.hicache_file_size_gb == 0)) {
        c.fail("bad value: {} with {}; expected a folder and a size above 0, or neither of them",
               said, c.say("", "hicache_file_size_gb"));
        return;
    }
    const bool planned = assumes_cards(command_line) || nodes_here(config).empty();
    if (path.empty() || s.disable_radix_cache || planned) return;
    struct stat found;
    if (stat(path.c_str(), &found) != 0) {
        c.fail("bad value: {}: {}; expected a folder", said, std::strerror(errno));
    } else if (!S_ISDIR(found.st_mode)) {
        c.fail("bad value: {} is no folder; expected one, for files of evicted KV", said);
    } else if (access(path.c_str(), W_OK | X_OK) != 0) {
        c.fail("bad value: {}: {}; expected a folder that this user may write into", said,
               std::strerror(errno));
    } else if (struct statvfs disk; statvfs(path.c_str(), &disk) == 0) {
        const double free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
        if (free < s.hicache_file_size_gb * 1e9) {
            c.fail("bad value: {}, but the disk of {} has {:.1f} GB free; expected less than that "
                   "(each replica makes files of this size)",
                   c.say("", "hicache_file_size_gb"), said, free * 1e-9);
        }
    }
}

}  // namespace

void check_backends(Config& config, const Sources& sources, const CommandLine& command_line,
                    const Machine& machine, Diagnostics& diagnostics) {
    CheckContext c{config, sources, nullptr, diagnostics};
    choose_device(config, c, command_line, machine);
    const bool explicit_cpu = command_line.device == DeviceChoice::kCpu;
    AeSeparation& ae = config.ae_separation;
    choose_comm(config, c, "comm_backend", ae.comm_backend, explicit_cpu);
    if (ae.kv_backend == CommBackend::kAuto) {
        ae.kv_backend = ae.comm_backend;
    } else {
        choose_comm(config, c, "kv_backend", ae.kv_backend, explicit_cpu);
    }
    choose_kernels(config, c);
    check_features(config, c);
    check_hicache_file(config, c, command_line);
}

}  // namespace aerie
