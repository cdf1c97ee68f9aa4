#include "template/arguments.h"

#include "template/failure.h"

namespace aerie::jinja {

Arguments::Arguments(std::string_view function, const Args& args,
                     std::initializer_list<std::string_view> names, size_t num_required)
    : function_(function), names_(names), values_(names.size(), nullptr) {
    if (args.positional.size() > names_.size()) {
        fail("{}() takes at most {} arguments, found {}", function, names_.size(),
             args.positional.size());
    }
    for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
    for (const auto& [name, value] : args.named) {
        size_t i = 0;
        while (i < names_.size() && names_[i] != name) ++i;
        if (i == names_.size()) fail("{}() has no argument '{}'", function, name);
        if (values_[i]) fail("{}() got two values for the argument '{}'", function, name);
        values_[i] = &value;
    }
    for (size_t i = 0; i < num_required; ++i) {
        if (!values_[i]) fail("{}() misses its argument '{}'", function, names_[i]);
    }
}

const std::string& Arguments::string(size_t idx) const {
    if (!values_[idx]->is_string()) {
        if (values_[idx]->is_undefined()) fail("{}", values_[idx]->undefined_message());
        fail("{}(): the argument '{}' is a {}, expected a str", function_, names_[idx],
             type_name(*values_[idx]));
    }
    return values_[idx]->string();
}

int64_t Arguments::integer(size_t idx, int64_t absent) const {
    if (!has(idx)) return absent;
    if (!values_[idx]->is_integral()) {
        fail("{}(): the argument '{}' is a {}, expected an int", function_, names_[idx],
             type_name(*values_[idx]));
    }
    return values_[idx]->integral();
}

bool Arguments::truth(size_t idx, bool absent) const {
    return values_[idx] ? is_true(*values_[idx]) : absent;
}

}  // namespace aerie::jinja
