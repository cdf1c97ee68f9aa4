// Values as text: str(), repr() and json.dumps() of Python.
#include <algorithm>
#include <cmath>

#include "template/budget.h"
#include "template/callable.h"
#include "template/failure.h"
#include "template/limits.h"
#include "template/python_text.h"
#include "template/value.h"

namespace aerie::jinja {
namespace {

void check_size(const std::string& text) {
    if (text.size() > kMaxStringBytes) fail("a text longer than {} bytes", kMaxStringBytes);
}

void append_repr(std::string& out, const Value& value, int depth);

void append_items(std::string& out, const Items& items, int depth) {
    for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += ", ";
        append_repr(out, items[i], depth);
        check_size(out);
    }
}

void append_sequence(std::string& out, const Sequence& sequence, int depth) {
    using Kind = Sequence::Kind;
    switch (sequence.kind) {
        case Kind::kList:
            out += '[';
            append_items(out, sequence.items, depth);
            out += ']';
            return;
        case Kind::kTuple:
            out += '(';
            append_items(out, sequence.items, depth);
            out += sequence.items.size() == 1 ? ",)" : ")";
            return;
        case Kind::kDictKeys:
        case Kind::kDictValues:
        case Kind::kDictItems:
            out += sequence.kind == Kind::kDictKeys     ? "dict_keys(["
                   : sequence.kind == Kind::kDictValues ? "dict_values(["
                                                        : "dict_items([";
            append_items(out, sequence.items, depth);
            out += "])";
            return;
        case Kind::kRange:
        case Kind::kGenerator:
            fail("a {} cannot be printed; the filter \"list\" makes a list of it",
                 sequence.kind == Kind::kRange ? "range" : "generator");
    }
}

void append_repr(std::string& out, const Value& value, int depth) {
    charge(1);
    if (depth > kMaxValueDepth) fail("values nested deeper than {} levels", kMaxValueDepth);
    if (value.is_string()) {
        out += repr_string(value.string());
    } else if (value.is_sequence()) {
        append_sequence(out, value.sequence(), depth + 1);
    } else if (value.is_dict() || value.is_namespace()) {
        if (value.is_namespace()) out += "<Namespace ";
        out += '{';
        bool first = true;
        const auto entry = [&](const Value& key, const Value& item) {
            if (!first) out += ", ";
            first = false;
            append_repr(out, key, depth + 1);
            out += ": ";
            append_repr(out, item, depth + 1);
            check_size(out);
        };
        if (value.is_dict()) {
            for (const auto& [key, item] : value.dict().entries) entry(key, item);
        } else {
            for (const auto& [key, item] : value.name_space().members) entry(key, item);
        }
        out += value.is_namespace() ? "}>" : "}";
    } else if (value.is_undefined()) {
        out += "Undefined";
    } else {
        out += to_str(value);
    }
}

void append_json_string(std::string& out, std::string_view text, bool ensure_ascii) {
    out += '"';
    for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        const char32_t code = next_code(text, at);
        switch (code) {
            case '"': out += "\\\""; break;
            case '\\': out += "\\\\"; break;
            case '\n': out += "\\n"; break;
            case '\r': out += "\\r"; break;
            case '\t': out += "\\t"; break;
            case '\f': out += "\\f"; break;
            case '\b': out += "\\b"; break;
            default:
                if (code < 0x20 || (ensure_ascii && code > 0x7e && code < 0x10000)) {
                    out += fmt::format("\\u{:04x}", static_cast<uint32_t>(code));
                } else if (ensure_ascii && code >= 0x10000) {
                    const auto rest = static_cast<uint32_t>(code - 0x10000);
                    out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10),
                                       0xdc00 + (rest & 0x3ff));
                } else {
                    out.append(text.substr(begin, at - begin));
                }
        }
    }
    out += '"';
}

std::string json_float(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return repr_float(value);
}

// A key of a dict as json.dumps makes a text of it.
std::string json_key(const Value& key) {
    if (key.is_string()) return key.string();
    if (key.is_float()) return json_float(key.number());
    if (key.is_bool()) return key.integral() ? "true" : "false";
    if (key.is_int()) return std::to_string(key.integral());
    if (key.is_none()) return "null";
    fail("keys must be str, int, float, bool or None, not {}", type_name(key));
}

class JsonWriter {
  public:
    JsonWriter(std::string& out, const JsonStyle& style) : out_(out), style_(style) {}

    void write(const Value& value, int level) {
        charge(1);
        check_size(out_);
        if (value.is_none()) {
            out_ += "null";
        } else if (value.is_bool()) {
            out_ += value.integral() ? "true" : "false";
        } else if (value.is_int()) {
            out_ += std::to_string(value.integral());
        } else if (value.is_float()) {
            out_ += json_float(value.number());
        } else if (value.is_string()) {
            append_json_string(out_, value.string(), style_.ensure_ascii);
        } else if (value.is_sequence() && (value.sequence().kind == Sequence::Kind::kList ||
                                           value.sequence().kind == Sequence::Kind::kTuple)) {
            write_list(value.sequence().items, level);
        } else if (value.is_dict()) {
            write_dict(value.dict().entries, level);
        } else {
            fail("Object of type {} is not JSON serializable", type_name(value));
        }
    }

  private:
    void line(int level) {
        if (!style_.pretty) return;
        out_ += '\n';
        for (int i = 0; i < level; ++i) out_ += style_.indent;
        check_size(out_);
    }
    void write_list(const Items& items, int level) {
        if (items.empty()) {
            out_ += "[]";
            return;
        }
        out_ += '[';
        for (size_t i = 0; i < items.size(); ++i) {
            if (i > 0) out_ += style_.item_separator;
            line(level + 1);
            write(items[i], level + 1);
        }
        line(level);
        out_ += ']';
    }
    void write_dict(const Entries& entries, int level) {
        if (entries.empty()) {
            out_ += "{}";
            return;
        }
        std::vector<const std::pair<Value, Value>*> order;
        for (const auto& entry : entries) order.push_back(&entry);
        if (style_.sort_keys) {
            std::stable_sort(order.begin(), order.end(),
                             [](const auto* a, const auto* b) { return less(a->first, b->first); });
        }
        out_ += '{';
        for (size_t i = 0; i < order.size(); ++i) {
            if (i > 0) out_ += style_.item_separator;
            line(level + 1);
            append_json_string(out_, json_key(order[i]->first), style_.ensure_ascii);
            out_ += style_.key_separator;
            write(order[i]->second, level + 1);
        }
        line(level);
        out_ += '}';
    }

    std::string& out_;
    const JsonStyle& style_;
};

}  // namespace

std::string type_name(const Value& value) {
    if (value.is_undefined()) return "Undefined";
    if (value.is_none()) return "NoneType";
    if (value.is_bool()) return "bool";
    if (value.is_int()) return "int";
    if (value.is_float()) return "float";
    if (value.is_string()) return "str";
    if (value.is_dict()) return "dict";
    if (value.is_namespace()) return "Namespace";
    if (value.is_loop()) return "LoopContext";
    if (value.is_callable()) {
        return value.callable().kind == Callable::Kind::kMacro ? "Macro" : "function";
    }
    switch (value.sequence().kind) {
        case Sequence::Kind::kList: return "list";
        case Sequence::Kind::kTuple: return "tuple";
        case Sequence::Kind::kRange: return "range";
        case Sequence::Kind::kDictKeys: return "dict_keys";
        case Sequence::Kind::kDictValues: return "dict_values";
        case Sequence::Kind::kDictItems: return "dict_items";
        case Sequence::Kind::kGenerator: return "generator";
    }
    return "object";
}

std::string to_str(const Value& value) {
    if (value.is_string()) return value.string();
    if (value.is_undefined()) return "";
    if (value.is_none()) return "None";
    if (value.is_bool()) return value.integral() ? "True" : "False";
    if (value.is_int()) return std::to_string(value.integral());
    if (value.is_float()) return repr_float(value.number());
    if (value.is_callable() && value.callable().kind == Callable::Kind::kMacro) {
        return "<Macro " + repr_string(value.callable().name) + ">";
    }
    if (value.is_callable() || value.is_loop()) fail("a {} cannot be printed", type_name(value));
    return to_repr(value);
}

std::string to_repr(const Value& value) {
    std::string out;
    append_repr(out, value, 0);
    charge_bytes(out.size());
    return out;
}

std::string to_json(const Value& value, const JsonStyle& style) {
    std::string out;
    JsonWriter(out, style).write(value, 0);
    charge_bytes(out.size());
    return out;
}

}  // namespace aerie::jinja
