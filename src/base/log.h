// The log of the process: standard error, one line a message, "[time] [level] [label] text".
// Any thread. Not for the layer path.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace aerie {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

Result<LogLevel> parse_log_level(std::string_view name);  // debug, info, warning, error
void set_log_level(LogLevel level);
void set_log_label(std::string label);  // this process's name in each line, e.g. "node-1"
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view text);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
    log(LogLevel::kDebug, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
    log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
    log(LogLevel::kWarning, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
    log(LogLevel::kError, format, std::forward<Args>(args)...);
}

}  // namespace aerie
