// The functions that a template finds without defining them.
#include <chrono>
#include <cmath>
#include <ctime>

#include "template/arguments.h"
#include "template/budget.h"
#include "template/failure.h"
#include "template/interpreter.h"
#include "template/limits.h"

namespace aerie::jinja {
namespace {

Value range(const Args& args) {
    const Arguments bound("range", args, {"start", "stop", "step"}, 1);
    const bool one = bound.find(1) == nullptr;
    for (int i = 0; i < 3; ++i) {
        if (bound.find(i) && !bound.at(i).is_integral()) {
            fail("'{}' object cannot be interpreted as an integer", type_name(bound.at(i)));
        }
    }
    const int64_t start = one ? 0 : bound.integer(0, 0);
    const int64_t stop = one ? bound.integer(0, 0) : bound.integer(1, 0);
    const int64_t step = bound.integer(2, 1);
    if (step == 0) fail("range() arg 3 must not be zero");
    Items items;
    for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
        if (static_cast<int64_t>(items.size()) >= kMaxRange) {
            fail("range too big, the sandbox takes at most {} items", kMaxRange);
        }
        items.emplace_back(at);
        if (__builtin_add_overflow(at, step, &at)) break;
    }
    charge(items.size());
    return make_sequence(Sequence::Kind::kRange, std::move(items));
}

Value dict(const Args& args) {
    Entries entries;
    if (args.positional.size() > 1) fail("dict() takes at most 1 positional argument");
    if (!args.positional.empty()) {
        const Value& from = args.positional[0];
        if (from.is_dict()) {
            entries = from.dict().entries;
        } else {
            for (const Value& pair : iterate(from)) {
                Items two = iterate(pair);
                if (two.size() != 2) fail("dict() takes pairs, found one of {} items", two.size());
                if (!is_hashable(two[0])) fail("unhashable type: '{}'", type_name(two[0]));
                entries.emplace_back(std::move(two[0]), std::move(two[1]));
            }
        }
    }
    for (const auto& [name, value] : args.named) entries.emplace_back(name, value);
    charge(1 + entries.size());
    return make_dict(std::move(entries));
}

// datetime.now().strftime(format)
Value strftime_now(const Args& args) {
    const Arguments bound("strftime_now", args, {"format"}, 1);
    std::string format = bound.string(0);
    if (format.empty()) return "";
    const auto now = std::chrono::system_clock::now();
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(
                            now - std::chrono::system_clock::from_time_t(seconds))
                            .count();
    // Python's own %f; the rest is the C library's, in Python too.
    for (size_t at = format.find('%'); at != std::string::npos && at + 1 < format.size();
         at = format.find('%', at + 2)) {
        if (format[at + 1] == 'f') format.replace(at, 2, fmt::format("{:06}", micros));
    }
    std::tm local{};
    localtime_r(&seconds, &local);
    std::string text(std::min<size_t>(format.size() * 64 + 64, 1 << 16), '\0');
    text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
    return text;
}

}  // namespace

bool has_function(std::string_view name) {
    for (std::string_view known : {"range", "dict", "namespace", "raise_exception", "strftime_now",
                                   "cycler", "joiner", "lipsum"}) {
        if (name == known) return true;
    }
    return false;
}

Value call_function(Interpreter& interpreter, const std::string& name, const Args& args) {
    if (name == "namespace") return interpreter.make_namespace(args);
    if (name == "range") return range(args);
    if (name == "dict") return dict(args);
    if (name == "strftime_now") return strftime_now(args);
    if (name == "raise_exception") {
        const Arguments bound("raise_exception", args, {"message"}, 1);
        throw Failure{to_str(bound.at(0)), 0, true};
    }
    fail("the function '{}' is not supported", name);
}

}  // namespace aerie::jinja
