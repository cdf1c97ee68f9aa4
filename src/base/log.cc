#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace aerie {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
    switch (level) {
        case LogLevel::kDebug: return spdlog::level::debug;
        case LogLevel::kInfo: return spdlog::level::info;
        case LogLevel::kWarning: return spdlog::level::warn;
        case LogLevel::kError: return spdlog::level::err;
    }
    return spdlog::level::info;
}

spdlog::logger& logger() {
    // Never destroyed: threads may log while the process ends.
    static auto* instance = [] {
        auto* made = new spdlog::logger("aerie", std::make_shared<spdlog::sinks::stderr_sink_mt>());
        made->set_pattern("[%Y-%m-%d %H:%M:%S.%e] [%l] [aerie] %v");
        return made;
    }();
    return *instance;
}

}  // namespace

Result<LogLevel> parse_log_level(std::string_view name) {
    if (name == "debug") return LogLevel::kDebug;
    if (name == "info") return LogLevel::kInfo;
    if (name == "warning") return LogLevel::kWarning;
    if (name == "error") return LogLevel::kError;
    return error("log_level is \"{}\", expected debug, info, warning or error", name);
}

void set_log_level(LogLevel level) { logger().set_level(spdlog_level(level)); }

void set_log_label(std::string label) {
    logger().set_pattern("[%Y-%m-%d %H:%M:%S.%e] [%l] [" + label + "] %v");
}

bool log_enabled(LogLevel level) { return logger().should_log(spdlog_level(level)); }

void log_line(LogLevel level, std::string_view text) {
    logger().log(spdlog_level(level), spdlog::string_view_t(text.data(), text.size()));
    logger().flush();
}

}  // namespace aerie
