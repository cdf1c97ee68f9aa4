// A valid pair of files to start from, written by `aerie check --example DIR`: three nodes of one
// card each (prefill attention, decode attention, experts), every key with its meaning.
#pragma once

#include <string>

#include "base/result.h"

namespace aerie {

std::string example_settings(const std::string& model_path);  // settings.json
std::string example_toml(const std::string& model_path);      // config.toml

// Writes both into `folder`, which is made where it does not exist. Files that are already there
// are not overwritten: an error.
Status write_example(const std::string& folder, const std::string& model_path);

}  // namespace aerie
