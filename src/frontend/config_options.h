// What the configuration says → the frontend's options.
#pragma once

#include <string>

#include "base/result.h"
#include "config/load.h"
#include "frontend/frontend.h"

namespace aerie::frontend {

// `loaded` has passed its checks.
FrontendOptions frontend_options(const LoadedConfig& loaded, const std::string& version);

// The formats of reasoning and tool calls: by the settings, or else what the chat template shows.
// Into defaults.formats and model_info. The error names the setting.
Status choose_formats(const Settings& settings, const std::string& template_source,
                      FrontendOptions& options);

}  // namespace aerie::frontend
