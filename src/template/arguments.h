// Arguments by position and name, as a Python function takes them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "template/interpreter.h"

namespace aerie::jinja {

class Arguments {
  public:
    // Throws Failure where there are too many, one is unknown or given twice, or one of the first
    // num_required is missing. `args` must outlive this.
    Arguments(std::string_view function, const Args& args,
              std::initializer_list<std::string_view> names, size_t num_required = 0);

    const Value* find(size_t idx) const { return values_[idx]; }  // null: not given
    bool has(size_t idx) const { return values_[idx] && !values_[idx]->is_none(); }
    const Value& at(size_t idx) const { return *values_[idx]; }
    // Each throws where the type is another.
    const std::string& string(size_t idx) const;
    int64_t integer(size_t idx, int64_t absent) const;  // None counts as absent
    bool truth(size_t idx, bool absent) const;

  private:
    std::string function_;
    std::vector<std::string_view> names_;
    std::vector<const Value*> values_;
};

}  // namespace aerie::jinja
