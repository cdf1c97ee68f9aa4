// What XGrammar calls where it fails or warns (XGRAMMAR_LOG_CUSTOMIZE).
#include <stdexcept>
#include <string>

#include "base/log.h"

namespace xgrammar {

// Thrown through XGrammar, and caught where this folder called it.
[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message) {
    throw std::runtime_error(message);
}

void LogMessageImpl(const std::string&, int, int, const std::string& message) {
    aerie::log_debug("xgrammar: {}", message);
}

}  // namespace xgrammar
