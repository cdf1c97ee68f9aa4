// Config: everything that settings.json, config.toml and the command line say, typed. Plain data,
// frozen at start. Each field is a row of the table in keys.cc, which holds its meaning, range and
// flags. After load_config() every "auto" and every derived default has been replaced by the value
// that holds; an optional that is still empty means "none".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "config/http_limits.h"

namespace aerie {

enum class Network { kRdma, kTcp, kLocal };
enum class CommBackend { kAuto, kNccl, kUcx, kGloo };
enum class KvTransfer { kActive, kPassive, kActivePassive };
enum class ExchangeDtype { kAuto, kFp8 };
enum class ComputeDtype { kBfloat16, kFloat32 };
enum class AttentionBackend { kAuto, kFlashinfer, kCpu };
enum class ExpertBackend { kAuto, kCutlass, kDeepGemm, kCpu };
enum class KvCacheDtype { kAuto, kBf16, kFp8E4m3 };
enum class SchedulePolicy { kFcfs, kLpm, kDfsWeight, kLof, kRandom, kPriority };
enum class LoadFormat { kAuto, kSafetensors, kDummy };
enum class DeviceChoice { kAuto, kCpu, kCuda };

// The word for a value in the files and in the log. The pointer lives as long as the process.
const char* name_of(Network value);
const char* name_of(CommBackend value);
const char* name_of(KvTransfer value);
const char* name_of(ExchangeDtype value);
const char* name_of(ComputeDtype value);
const char* name_of(AttentionBackend value);
const char* name_of(ExpertBackend value);
const char* name_of(KvCacheDtype value);
const char* name_of(SchedulePolicy value);
const char* name_of(LoadFormat value);
const char* name_of(DeviceChoice value);
const char* name_of(LogLevel value);

// settings.json
struct Settings {
    std::string model_path, tokenizer_path, served_model_name;
    int tp_size = 1, cp_size = 1, ep_size = 1, dp_size = 1;
    bool enable_ae_separation = false;
    AttentionBackend attention_backend = AttentionBackend::kAuto;
    ExpertBackend expert_backend = ExpertBackend::kAuto;
    KvCacheDtype kv_cache_dtype = KvCacheDtype::kAuto;
    std::optional<int> max_running_requests;  // whole instance
    std::optional<int64_t> max_total_tokens;  // of one replica
    int chunked_prefill_size = 8192;          // tokens; -1 turns chunking off
    int page_size = 64;                       // tokens
    SchedulePolicy schedule_policy = SchedulePolicy::kFcfs;
    bool schedule_low_priority_values_first = false;
    bool enable_mixed_chunk = true;
    double schedule_conservativeness = 1.0;
    double mem_fraction_static = 0.85;
    bool disable_radix_cache = false;
    bool enable_mtp = false;
    int mtp_num_steps = 1;
    std::optional<int> max_queued_requests;
    std::optional<int> context_length;  // tokens; set after load_config()
    LoadFormat load_format = LoadFormat::kAuto;
    std::optional<int64_t> random_seed;
    std::optional<bool> enable_deterministic_inference;  // set after load_config()
    double hicache_size_gb = 0;       // of one replica, as the next
    double hicache_file_size_gb = 0;  // under hicache_path
    std::string hicache_path;         // empty: no file
    std::string tool_call_parser, reasoning_parser;  // empty: from the model
    std::string chat_template;                       // empty: the model's
    std::string api_key, admin_api_key;              // empty: none
    std::string ssl_certfile, ssl_keyfile;           // empty: plain HTTP
    std::string ssl_keyfile_password, ssl_ca_certs;  // empty: none
    HttpLimits http;
    RequestLimits requests;
    int stream_interval = 1;                         // tokens
    bool enable_metrics = true;
    LogLevel log_level = LogLevel::kInfo;
    double watchdog_timeout = 300;  // seconds
};

// config.toml
struct Cluster {
    std::string name = "aerie";
    int nodes = 1;
    int gpus_per_node = 1;   // cards
    std::string port_range;  // "a-b"; empty: ephemeral
    Network network = Network::kTcp;
    std::vector<std::pair<std::string, std::string>> hosts;  // node name, address; by node number
};

struct Parallel {
    int attention_tp = 1, attention_cp = 1;
    int expert_ep = 1, expert_dp = 1;
    int global_dp = 1;  // attention replicas on the prefill side
};

struct AeSeparation {
    bool enabled = false;
    std::vector<std::string> prefill_nodes, decode_nodes, decode_attention_nodes;
    std::optional<int> decode_tp, decode_cp;  // set after load_config()
    CommBackend comm_backend = CommBackend::kAuto;
    CommBackend kv_backend = CommBackend::kAuto;
    KvTransfer kv_transfer = KvTransfer::kActivePassive;
    std::optional<int> microbatches;  // none: chosen by the number of tokens
    ExchangeDtype exchange_dtype = ExchangeDtype::kAuto;
    int expert_rows_max = 4096;
    double expert_prefill_wait_ms = 20;
    double exchange_timeout_s = 30;
    double kv_lease_s = 30;
};

struct ModelSection {
    std::string path;
    ComputeDtype dtype = ComputeDtype::kBfloat16;
    std::optional<int> max_seq_len;  // tokens
};

struct Server {
    std::string host = "127.0.0.1";
    int port = 30000;
};

struct Config {
    Settings settings;
    Cluster cluster;
    Parallel parallel;
    AeSeparation ae_separation;
    ModelSection model;
    Server server;

    // The command line and the environment only.
    DeviceChoice device = DeviceChoice::kAuto;  // never kAuto after load_config()
    bool in_process = false;
    bool share_cards = false;
    std::optional<int> node_rank;  // this machine is node-K; none: see nodes_here()
    std::string rendezvous;        // "host:port" of node-0's launcher; empty: one machine

    bool separated() const { return ae_separation.enabled; }
    std::string node_name(int node) const { return "node-" + std::to_string(node); }
};

// All that is wrong or worth saying, in the order found; each entry is one line.
struct Diagnostics {
    std::vector<std::string> errors, warnings;
    std::vector<std::string> notes;  // for the log: what runs where a default has a choice
    bool ok() const { return errors.empty(); }
};

// The nodes that run on this machine, ascending: node_rank where it is given, all of them without
// `hosts`, else those whose address is this machine's.
std::vector<int> nodes_here(const Config& config);

}  // namespace aerie
