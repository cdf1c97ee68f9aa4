// The cross-checks: what must hold between the two files, the model and the machine. Each broken
// one adds a line that begins with the words users can search for.
#pragma once

#include "config/load.h"
#include "config/sources.h"

namespace aerie {

// Everything that needs no memory sizes. `model` is null where config.json could not be read.
void check_config(const Config& config, const Sources& sources, const ModelConfig* model,
                  Diagnostics& diagnostics);

// What does not exist in this build or on this machine: refused, or replaced with a warning.
// Changes the config to what will run.
void check_backends(Config& config, const Sources& sources, const CommandLine& command_line,
                    const Machine& machine, Diagnostics& diagnostics);

// Weights, KV pool and activations against the card. Tries other settings to name those that fit.
void check_memory(const Config& config, const ModelConfig& model, const MemoryPlan& plan,
                  Diagnostics& diagnostics);

}  // namespace aerie
