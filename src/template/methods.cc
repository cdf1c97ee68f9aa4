// The methods of Python's str, list, dict and of Jinja's loop.
#include <algorithm>
#include <array>

#include "template/arguments.h"
#include "template/budget.h"
#include "template/callable.h"
#include "template/failure.h"
#include "template/python_text.h"

namespace aerie::jinja {
namespace {

constexpr std::string_view kStringMethods[] = {
    "capitalize", "casefold",   "center",  "count",        "encode",       "endswith",   "expandtabs",
    "find",       "format",     "index",   "isalnum",      "isalpha",      "isascii",    "isdecimal",
    "isdigit",    "isidentifier", "islower", "isnumeric",  "isprintable",  "isspace",    "istitle",
    "isupper",    "join",       "ljust",   "lower",        "lstrip",       "maketrans",  "partition",
    "format_map", "removeprefix", "removesuffix", "replace", "rfind",      "rindex",     "rjust",
    "rpartition", "rsplit",     "rstrip",  "split",        "splitlines",   "startswith", "strip",
    "swapcase",   "title",      "translate", "upper",      "zfill"};
constexpr std::string_view kDictMethods[] = {"copy", "fromkeys", "get", "items", "keys", "values"};
constexpr std::string_view kListMethods[] = {"copy", "count", "index"};
constexpr std::string_view kTupleMethods[] = {"count", "index"};
constexpr std::string_view kLoopMethods[] = {"changed", "cycle"};

template <size_t N>
bool is_in(const std::string_view (&list)[N], std::string_view name) {
    return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

Value list_of(const std::vector<std::string_view>& parts) {
    charge(1 + parts.size());
    Items items;
    items.reserve(parts.size());
    for (std::string_view part : parts) items.emplace_back(part);
    return make_list(std::move(items));
}

Value split(const std::string& name, const std::string& text, const Args& args) {
    const Arguments bound(name, args, {"sep", "maxsplit"});
    const int64_t max_split = bound.integer(1, -1);
    const bool from_right = name == "rsplit";
    if (!bound.has(0)) {
        return list_of(from_right ? rsplit_spaces(text, max_split) : split_spaces(text, max_split));
    }
    const std::string& separator = bound.string(0);
    if (separator.empty()) fail("empty separator");
    return list_of(from_right ? rsplit_by(text, separator, max_split)
                              : split_by(text, separator, max_split));
}

Value strip_method(const std::string& name, const std::string& text, const Args& args) {
    const Arguments bound(name, args, {"chars"});
    const bool left = name != "rstrip", right = name != "lstrip";
    if (bound.has(0)) return strip(text, bound.string(0), left, right);
    std::string_view rest = text;
    if (left) rest = lstrip(rest);
    if (right) rest = rstrip(rest);
    return rest;
}

// The part text[start:end], for find, count, startswith and the like. Nothing where start is
// beyond the end.
struct Window {
    std::string_view text;
    size_t first_code;  // of the window, in the whole text
};
std::optional<Window> window(const std::string& text, const Arguments& bound) {
    if (!bound.has(1) && !bound.has(2)) return Window{text, 0};
    const auto length = static_cast<int64_t>(num_codes(text));
    const auto place = [&](int64_t at) { return std::max<int64_t>(at < 0 ? at + length : at, 0); };
    const int64_t start = place(bound.integer(1, 0));
    const int64_t end = std::min(place(bound.integer(2, length)), length);
    if (start > end) return std::nullopt;
    const size_t begin = byte_of_code(text, start);
    const std::string_view rest = std::string_view(text).substr(begin);
    return Window{rest.substr(0, byte_of_code(rest, end - start)), static_cast<size_t>(start)};
}

Value starts_or_ends(const std::string& name, const std::string& text, const Args& args) {
    const Arguments bound(name, args, {"prefix", "start", "end"}, 1);
    const auto part = window(text, bound);
    const auto fits = [&](const Value& wanted) {
        if (!wanted.is_string()) {
            if (wanted.is_undefined()) fail("{}", wanted.undefined_message());
            fail("{} first arg must be str or a tuple of str, not {}", name, type_name(wanted));
        }
        if (!part) return false;
        return name == "startswith" ? part->text.starts_with(wanted.string())
                                    : part->text.ends_with(wanted.string());
    };
    const Value& wanted = bound.at(0);
    if (wanted.is_sequence() && wanted.sequence().kind == Sequence::Kind::kTuple) {
        const Items& items = wanted.sequence().items;
        return std::any_of(items.begin(), items.end(), fits);
    }
    return fits(wanted);
}

Value find_or_count(const std::string& name, const std::string& text, const Args& args) {
    const Arguments bound(name, args, {"sub", "start", "end"}, 1);
    const std::string& wanted = bound.string(0);
    const auto part = window(text, bound);
    if (name == "count") return static_cast<int64_t>(part ? count_text(part->text, wanted) : 0);
    size_t at = std::string_view::npos;
    if (part) at = name[0] == 'r' ? part->text.rfind(wanted) : find_text(part->text, wanted);
    if (at != std::string_view::npos) {
        return static_cast<int64_t>(part->first_code + num_codes(part->text.substr(0, at)));
    }
    if (name.ends_with("index")) fail("substring not found");
    return int64_t{-1};
}

Value partition(const std::string& name, const std::string& text, const Args& args) {
    const Arguments bound(name, args, {"sep"}, 1);
    const std::string& separator = bound.string(0);
    if (separator.empty()) fail("empty separator");
    const std::string_view view = text;
    const bool right = name == "rpartition";
    const size_t at = right ? view.rfind(separator) : find_text(view, separator);
    if (at == std::string_view::npos) {
        return right ? make_tuple({"", "", view}) : make_tuple({view, "", ""});
    }
    return make_tuple({view.substr(0, at), separator, view.substr(at + separator.size())});
}

Value pad(const std::string& name, const std::string& text, const Args& args) {
    const Arguments bound(name, args, {"width", "fillchar"}, 1);
    const std::string fill = bound.has(1) ? bound.string(1) : name == "zfill" ? "0" : " ";
    if (num_codes(fill) != 1) fail("The fill character must be exactly one character long");
    const auto length = static_cast<int64_t>(num_codes(text));
    const int64_t width = bound.integer(0, 0);
    if (width <= length) return text;
    const auto missing = static_cast<size_t>(width - length);
    charge_bytes(missing > kMaxStringBytes ? missing : missing * fill.size());
    const auto filled = [&](size_t count) {
        std::string out;
        for (size_t i = 0; i < count; ++i) out += fill;
        return out;
    };
    if (name == "ljust") return text + filled(missing);
    if (name == "rjust") return filled(missing) + text;
    if (name == "center") {
        const size_t left = missing / 2 + (missing & width & 1);
        return filled(left) + text + filled(missing - left);
    }
    const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+');
    return sign ? text[0] + filled(missing) + text.substr(1) : filled(missing) + text;
}

// The is… methods: all characters fit and there is at least one; of cased ones at least one.
Value is_method(const std::string& name, const std::string& text) {
    bool any = false, cased = false;
    for (size_t at = 0; at < text.size();) {
        const char32_t code = next_code(text, at);
        bool fits = false;
        if (name == "isalpha") fits = is_alpha(code);
        else if (name == "isdigit" || name == "isdecimal") fits = is_decimal(code);
        else if (name == "isalnum") fits = is_alpha(code) || is_decimal(code);
        else if (name == "isspace") fits = is_space(code);
        else {
            std::string one;
            append_utf8(one, code);
            const bool upper = to_lower(one) != one, lower = to_upper(one) != one;
            fits = name == "isupper" ? !lower || upper : !upper || lower;
            cased |= upper || lower;
        }
        if (!fits) return false;
        any = true;
    }
    return name == "isupper" || name == "islower" ? cased : any;
}

Value join(const std::string& separator, const Args& args) {
    const Arguments bound("join", args, {"iterable"}, 1);
    const Items items = iterate(bound.at(0));
    std::string out;
    for (size_t i = 0; i < items.size(); ++i) {
        if (!items[i].is_string()) {
            fail("sequence item {}: expected str instance, {} found", i, type_name(items[i]));
        }
        if (i > 0) out += separator;
        out += items[i].string();
        charge_bytes(separator.size() + items[i].string().size());
    }
    charge_bytes(out.size());
    return out;
}

Value string_method(const std::string& text, const std::string& name, const Args& args) {
    charge_bytes(text.size());
    if (name == "split" || name == "rsplit") return split(name, text, args);
    if (name == "strip" || name == "lstrip" || name == "rstrip") {
        return strip_method(name, text, args);
    }
    if (name == "startswith" || name == "endswith") return starts_or_ends(name, text, args);
    if (name == "find" || name == "rfind" || name == "index" || name == "rindex" ||
        name == "count") {
        return find_or_count(name, text, args);
    }
    if (name == "partition" || name == "rpartition") return partition(name, text, args);
    if (name == "ljust" || name == "rjust" || name == "center" || name == "zfill") {
        return pad(name, text, args);
    }
    if (name == "join") return join(text, args);
    if (name == "format") return format_braces(text, args);
    if (name == "replace") {
        const Arguments bound(name, args, {"old", "new", "count"}, 2);
        return replace_text(text, bound.string(0), bound.string(1), bound.integer(2, -1));
    }
    if (name == "removeprefix" || name == "removesuffix") {
        const Arguments bound(name, args, {"affix"}, 1);
        const std::string& affix = bound.string(0);
        std::string_view rest = text;
        if (name == "removeprefix" && rest.starts_with(affix)) rest.remove_prefix(affix.size());
        if (name == "removesuffix" && rest.ends_with(affix)) rest.remove_suffix(affix.size());
        return rest;
    }
    if (name == "splitlines") {
        const Arguments bound(name, args, {"keepends"});
        return list_of(split_lines(text, bound.truth(0, false)));
    }
    const Arguments none(name, args, {});
    if (name == "upper") return to_upper(text);
    if (name == "lower" || name == "casefold") return to_lower(text);
    if (name == "title") return title_method(text);
    if (name == "capitalize") return capitalize(text);
    if (name == "isascii") {
        return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
    }
    for (std::string_view known :
         {"isalpha", "isdigit", "isdecimal", "isalnum", "isspace", "isupper", "islower"}) {
        if (name == known) return is_method(name, text);
    }
    fail("the method str.{}() is not supported", name);
}

Value dict_method(const Value& self, const std::string& name, const Args& args) {
    const Dict& dict = self.dict();
    charge(1 + dict.entries.size());
    if (name == "get") {
        const Arguments bound("get", args, {"key", "default"}, 1);
        if (!is_hashable(bound.at(0))) fail("unhashable type: '{}'", type_name(bound.at(0)));
        const Value* found = dict.find(bound.at(0));
        if (found) return *found;
        return bound.find(1) ? bound.at(1) : Value();
    }
    const Arguments none(name, args, {});
    if (name == "copy") return self;
    Items items;
    for (const auto& [key, value] : dict.entries) {
        if (name == "items") items.push_back(make_tuple({key, value}));
        else if (name == "keys") items.push_back(key);
        else if (name == "values") items.push_back(value);
        else fail("the method dict.{}() is not supported", name);
    }
    return make_sequence(name == "items"  ? Sequence::Kind::kDictItems
                         : name == "keys" ? Sequence::Kind::kDictKeys
                                          : Sequence::Kind::kDictValues,
                         std::move(items));
}

Value list_method(const Value& self, const std::string& name, const Args& args) {
    if (name == "copy") return self;
    const Arguments bound(name, args, {"value"}, 1);
    const Items& items = self.sequence().items;
    if (name == "count") {
        return static_cast<int64_t>(std::count_if(
            items.begin(), items.end(), [&](const Value& item) { return equal(item, bound.at(0)); }));
    }
    const auto found = std::find_if(items.begin(), items.end(),
                                    [&](const Value& item) { return equal(item, bound.at(0)); });
    if (found == items.end()) fail("{} is not in list", to_repr(bound.at(0)));
    return static_cast<int64_t>(found - items.begin());
}

}  // namespace

bool has_method(const Value& object, std::string_view name) {
    if (object.is_string()) return is_in(kStringMethods, name);
    if (object.is_dict()) return is_in(kDictMethods, name);
    if (object.is_loop()) return is_in(kLoopMethods, name);
    if (!object.is_sequence()) return false;
    const Sequence::Kind kind = object.sequence().kind;
    return kind == Sequence::Kind::kList    ? is_in(kListMethods, name)
           : kind == Sequence::Kind::kTuple ? is_in(kTupleMethods, name)
                                            : false;
}

Value call_method(const Value& self, const std::string& name, const Args& args) {
    if (self.is_string()) return string_method(self.string(), name, args);
    if (self.is_dict()) return dict_method(self, name, args);
    if (self.is_sequence()) return list_method(self, name, args);
    if (!args.named.empty()) fail("loop.{}() takes no named arguments", name);
    if (name == "cycle") return self.loop().cycle(args.positional);
    return self.loop().changed(args.positional);
}

}  // namespace aerie::jinja
