#include "template/filters.h"

#include <unordered_map>

#include "template/budget.h"
#include "template/failure.h"

namespace aerie::jinja {
namespace {

const std::unordered_map<std::string_view, FilterFunction>& filter_table() {
    static const auto table = [] {
        std::unordered_map<std::string_view, FilterFunction> result;
        for (const auto* list : {&text_filters(), &value_filters(), &list_filters()}) {
            for (const auto& [name, function] : *list) result.emplace(name, function);
        }
        return result;
    }();
    return table;
}

const std::unordered_map<std::string_view, TestFunction>& test_table() {
    static const auto table = [] {
        std::unordered_map<std::string_view, TestFunction> result;
        for (const auto& [name, function] : tests()) result.emplace(name, function);
        return result;
    }();
    return table;
}

}  // namespace

Value Interpreter::filter(const std::string& name, const Value& input, const Args& args) {
    const auto found = filter_table().find(name);
    if (found == filter_table().end()) fail("the filter '{}' is unknown or not supported", name);
    charge(1);
    return found->second({*this, found->first, input, args});
}

bool Interpreter::test(const std::string& name, const Value& input, const Args& args) {
    const auto found = test_table().find(name);
    if (found == test_table().end()) fail("the test '{}' is unknown or not supported", name);
    charge(1);
    return found->second({*this, found->first, input, args});
}

}  // namespace aerie::jinja
