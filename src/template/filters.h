// Jinja's filters and tests by name.
#pragma once

#include <string_view>
#include <vector>

#include "template/interpreter.h"

namespace aerie::jinja {

// What a filter or test is given: its input, and the arguments in the brackets after its name.
struct FilterCall {
    Interpreter& interpreter;
    std::string_view name;
    const Value& input;
    const Args& args;
};
using FilterFunction = Value (*)(const FilterCall&);
using TestFunction = bool (*)(const FilterCall&);

struct NamedFilter {
    std::string_view name;
    FilterFunction function;
};
struct NamedTest {
    std::string_view name;
    TestFunction function;
};

const std::vector<NamedFilter>& text_filters();   // text_filters.cc
const std::vector<NamedFilter>& value_filters();  // value_filters.cc
const std::vector<NamedFilter>& list_filters();   // list_filters.cc
const std::vector<NamedTest>& tests();            // predicates.cc

// The value at "a.b.0" in an item, as map(attribute=…), sort(attribute=…) and the like read it.
Value attribute_path(const Value& item, const Value& path);

}  // namespace aerie::jinja
