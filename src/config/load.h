// The command line and both files → one checked Config. All mistakes are reported, not only the
// first. Reads files and the environment; starts nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/memory_plan.h"
#include "config/model_config.h"
#include "config/placement.h"

namespace aerie {

// What the command line gives, as text (command_line.h fills it).
struct CommandLine {
    std::string config_path, ae_config_path;  // empty: not given
    // (flag without dashes and with aliases resolved, value)
    std::vector<std::pair<std::string, std::string>> overrides;
    std::optional<DeviceChoice> device;
    bool in_process = false;
    bool share_cards = false;
    std::optional<int> node_rank;
    std::string rendezvous;
    int64_t card_memory = 0;  // bytes; `check --card-memory`. 0: this machine's
    int64_t card_part = 0;    // bytes of a card that one host has, as the launcher measured; 0: see above
};

// What this machine has; probe_machine() of environment.h measures it.
struct Machine {
    int num_gpus = 0;
    int64_t memory_free = 0;  // bytes of host memory that are free now
    int64_t gpu_memory = 0;   // bytes of one card
};

struct LoadedConfig {
    Config config;
    ModelConfig model;
    Placement placement;  // with `memory`: only where diagnostics.ok()
    MemoryPlan memory;
    Diagnostics diagnostics;
};

LoadedConfig load_config(const CommandLine& command_line, const Machine& machine);

// "31000-31099" → {31000, 31099}; nothing where it is no such range.
std::optional<std::pair<int, int>> parse_port_range(const std::string& text);

// The bytes that one card of `config` has on `machine`: a GPU's memory, divided evenly among the cards
// that share it, or this machine's free memory divided by its cards.
int64_t card_memory(const Config& config, const Machine& machine);
// With --share-cards the hosts of this machine are all on its first GPU, with an equal part of it each.
int64_t hosts_on_a_gpu(const Config& config);

}  // namespace aerie
