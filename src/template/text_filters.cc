// Filters that give text.
#include <algorithm>

#include "template/arguments.h"
#include "template/budget.h"
#include "template/failure.h"
#include "template/filters.h"
#include "template/python_text.h"

namespace aerie::jinja {
namespace {

std::string text_of(const FilterCall& call) {
    std::string text = to_str(call.input);
    charge_bytes(text.size());
    return text;
}

Value upper(const FilterCall& call) {
    const Arguments none(call.name, call.args, {});
    return to_upper(text_of(call));
}
Value lower(const FilterCall& call) {
    const Arguments none(call.name, call.args, {});
    return to_lower(text_of(call));
}
Value capitalize_filter(const FilterCall& call) {
    const Arguments none(call.name, call.args, {});
    return capitalize(text_of(call));
}

// Unlike str.title(): words begin after white space, '-' and opening brackets only.
Value title(const FilterCall& call) {
    const Arguments none(call.name, call.args, {});
    const std::string text = text_of(call);
    std::string out;
    bool begins = true;
    for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        const char32_t code = next_code(text, at);
        const std::string_view character = std::string_view(text).substr(begin, at - begin);
        const bool between = is_space(code) || code == '-' || code == '(' || code == '{' ||
                             code == '[' || code == '<';
        out += begins ? to_upper(character) : to_lower(character);
        begins = between;
    }
    return out;
}

Value trim(const FilterCall& call) {
    const Arguments bound(call.name, call.args, {"chars"});
    const std::string text = text_of(call);
    if (bound.has(0)) return strip(text, bound.string(0), true, true);
    return rstrip(lstrip(text));
}

Value replace(const FilterCall& call) {
    const Arguments bound(call.name, call.args, {"old", "new", "count"}, 2);
    return replace_text(text_of(call), to_str(bound.at(0)), to_str(bound.at(1)),
                        bound.integer(2, -1));
}

Value string(const FilterCall& call) {
    const Arguments none(call.name, call.args, {});
    return text_of(call);
}

// jinja2.filters.do_indent.
Value indent(const FilterCall& call) {
    const Arguments bound(call.name, call.args, {"width", "first", "blank"});
    std::string by(4, ' ');
    if (bound.find(0) && bound.at(0).is_string()) {
        by = bound.string(0);
    } else if (bound.find(0)) {
        const int64_t width = std::max<int64_t>(bound.integer(0, 4), 0);
        charge_bytes(width);
        by.assign(width, ' ');
    }
    const bool blank = bound.truth(2, false);
    if (call.input.is_undefined()) fail("{}", call.input.undefined_message());
    if (!call.input.is_string()) {
        fail("unsupported operand type(s) for +=: '{}' and 'str'", type_name(call.input));
    }
    const std::string text = text_of(call) + "\n";
    std::string out;
    bool first = true;
    for (std::string_view line : split_lines(text)) {
        if (!first) out += '\n';
        if (first ? bound.truth(1, false) : blank || !line.empty()) {
            charge_bytes(by.size());
            out += by;
        }
        out += line;
        first = false;
        if (out.size() > kMaxStringBytes) charge_bytes(out.size());
    }
    charge_bytes(out.size());
    return out;
}

Value tojson(const FilterCall& call) {
    const Arguments bound(call.name, call.args, {"ensure_ascii", "indent", "separators", "sort_keys"});
    JsonStyle style;
    style.ensure_ascii = bound.truth(0, false);
    style.sort_keys = bound.truth(3, false);
    if (bound.has(1)) {
        style.pretty = true;
        style.item_separator = ",";
        if (bound.at(1).is_string()) {
            style.indent = bound.string(1);
        } else {
            const int64_t width = std::max<int64_t>(bound.integer(1, 0), 0);
            if (width > 1000) fail("tojson(): indent {} is not supported, expected at most 1000", width);
            style.indent.assign(width, ' ');
        }
    }
    if (bound.has(2)) {
        const Items separators = iterate(bound.at(2));
        if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
            fail("tojson(): separators are (item separator, key separator)");
        }
        style.item_separator = separators[0].string();
        style.key_separator = separators[1].string();
    }
    return to_json(call.input, style);
}

Value format(const FilterCall& call) {
    if (call.args.named.empty()) {
        return format_percent(to_str(call.input), make_tuple(call.args.positional));
    }
    if (!call.args.positional.empty()) {
        fail("can't handle positional and keyword arguments at the same time");
    }
    Entries entries;
    for (const auto& [name, value] : call.args.named) entries.emplace_back(name, value);
    return format_percent(to_str(call.input), make_dict(std::move(entries)));
}

Value escape(const FilterCall& call) {
    const Arguments none(call.name, call.args, {});
    std::string out;
    for (char c : text_of(call)) {
        switch (c) {
            case '&': out += "&amp;"; break;
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '"': out += "&#34;"; break;
            case '\'': out += "&#39;"; break;
            default: out += c;
        }
    }
    charge_bytes(out.size());
    return out;
}

Value join(const FilterCall& call) {
    const Arguments bound(call.name, call.args, {"d", "attribute"});
    const std::string separator = bound.find(0) ? to_str(bound.at(0)) : "";
    std::string out;
    bool first = true;
    for (const Value& item : iterate(call.input)) {
        if (!first) out += separator;
        first = false;
        out += to_str(bound.has(1) ? attribute_path(item, bound.at(1)) : item);
        charge(1 + separator.size() / 64);
        if (out.size() > kMaxStringBytes) charge_bytes(out.size());
    }
    charge_bytes(out.size());
    return out;
}

}  // namespace

const std::vector<NamedFilter>& text_filters() {
    static const std::vector<NamedFilter> filters = {
        {"capitalize", capitalize_filter},
        {"e", escape},
        {"escape", escape},
        {"format", format},
        {"indent", indent},
        {"join", join},
        {"lower", lower},
        {"replace", replace},
        {"safe", string},  // nothing is escaped, so nothing needs to be marked as safe
        {"string", string},
        {"title", title},
        {"tojson", tojson},
        {"trim", trim},
        {"upper", upper},
    };
    return filters;
}

}  // namespace aerie::jinja
