// What the configuration says → the frontend's options.
#pragma once

#include <string>

#include "base/result.h"
#include "config/load.h"
#include "frontend/frontend.h"

namespace aerie::frontend {

// `loaded` has passed its checks. The error names a setting that is not supported yet.
Result<FrontendOptions> frontend_options(const LoadedConfig& loaded, const std::string& version);

}  // namespace aerie::frontend
