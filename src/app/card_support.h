#pragma once

#include "base/result.h"
#include "config/load.h"

namespace aerie {

// Where the device is a GPU: an error that names what of the configuration does not run on one yet. It
// serves on CPUs, and `aerie check --card-memory` plans it.
Status check_card_support(const LoadedConfig& loaded);

}  // namespace aerie
