// Jinja's tests: what may stand after "is".
#include "template/arguments.h"
#include "template/callable.h"
#include "template/failure.h"
#include "template/filters.h"
#include "template/python_text.h"

namespace aerie::jinja {
namespace {

const Value& only_argument(const FilterCall& call) {
    if (call.args.positional.size() != 1 || !call.args.named.empty()) {
        fail("the test '{}' takes one argument", call.name);
    }
    return call.args.positional[0];
}

// x % y == rest
bool has_rest(const FilterCall& call, const Value& divisor, int64_t rest) {
    return equal(binary("%", call.input, divisor), rest);
}

bool is_iterable(const Value& value) {
    return value.is_undefined() || value.is_string() || value.is_sequence() || value.is_dict() ||
           value.is_loop();
}

// Jinja asks for len() and for subscripts, so a dict and an undefined value are sequences too.
bool is_sequence_like(const Value& value) {
    if (value.is_string() || value.is_dict() || value.is_undefined()) return true;
    if (!value.is_sequence()) return false;
    const Sequence::Kind kind = value.sequence().kind;
    return kind == Sequence::Kind::kList || kind == Sequence::Kind::kTuple ||
           kind == Sequence::Kind::kRange;
}

bool has_case(const Value& value, bool upper) {
    const std::string text = to_str(value);
    const std::string as_upper = to_upper(text), as_lower = to_lower(text);
    return as_upper != as_lower && text == (upper ? as_upper : as_lower);
}

}  // namespace

const std::vector<NamedTest>& tests() {
    using Call = const FilterCall&;
    static const auto eq = [](Call c) { return equal(c.input, only_argument(c)); };
    static const auto ne = [](Call c) { return !equal(c.input, only_argument(c)); };
    static const auto lt = [](Call c) { return less(c.input, only_argument(c), "<"); };
    static const auto gt = [](Call c) { return less(only_argument(c), c.input, ">"); };
    static const auto le = [](Call c) {
        return less(c.input, only_argument(c), "<=") || equal(c.input, only_argument(c));
    };
    static const auto ge = [](Call c) {
        return less(only_argument(c), c.input, ">=") || equal(c.input, only_argument(c));
    };
    static const std::vector<NamedTest> tests = {
        {"==", eq},
        {"eq", eq},
        {"equalto", eq},
        {"!=", ne},
        {"ne", ne},
        {"<", lt},
        {"lt", lt},
        {"lessthan", lt},
        {">", gt},
        {"gt", gt},
        {"greaterthan", gt},
        {"<=", le},
        {"le", le},
        {">=", ge},
        {"ge", ge},
        {"boolean", [](Call c) { return c.input.is_bool(); }},
        {"callable", [](Call c) { return c.input.is_callable() || c.input.is_undefined(); }},
        {"defined", [](Call c) { return !c.input.is_undefined(); }},
        {"divisibleby", [](Call c) { return has_rest(c, only_argument(c), 0); }},
        {"escaped", [](Call) { return false; }},
        {"even", [](Call c) { return has_rest(c, int64_t{2}, 0); }},
        {"false", [](Call c) { return c.input.is_bool() && !is_true(c.input); }},
        {"float", [](Call c) { return c.input.is_float(); }},
        {"in", [](Call c) { return contains(only_argument(c), c.input); }},
        {"integer", [](Call c) { return c.input.is_int(); }},
        {"iterable", [](Call c) { return is_iterable(c.input); }},
        {"lower", [](Call c) { return has_case(c.input, false); }},
        {"mapping", [](Call c) { return c.input.is_dict(); }},
        {"none", [](Call c) { return c.input.is_none(); }},
        {"number", [](Call c) { return c.input.is_number(); }},
        {"odd", [](Call c) { return has_rest(c, int64_t{2}, 1); }},
        {"sameas", [](Call c) { return c.input.same_object(only_argument(c)); }},
        {"sequence", [](Call c) { return is_sequence_like(c.input); }},
        {"string", [](Call c) { return c.input.is_string(); }},
        {"true", [](Call c) { return c.input.is_bool() && is_true(c.input); }},
        {"undefined", [](Call c) { return c.input.is_undefined(); }},
        {"upper", [](Call c) { return has_case(c.input, true); }},
    };
    return tests;
}

}  // namespace aerie::jinja
