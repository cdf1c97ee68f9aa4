#pragma once

#include "base/result.h"
#include "config/load.h"

namespace aerie {

// With --device cuda: an error that names what of the configuration does not run on a card yet.
// Others serve on CPUs, and `aerie check` plans them.
Status check_card_support(const LoadedConfig& loaded);

}  // namespace aerie
