// What tells two model folders apart without reading their weights.
#pragma once

#include <cstdint>
#include <string>

namespace aerie {

// Of config.json, and of the name, the size and the header (the tensors' names, types and shapes) of
// each safetensors file. 0 where the folder cannot be read: loading will say so.
uint64_t model_fingerprint(const std::string& folder);

}  // namespace aerie
