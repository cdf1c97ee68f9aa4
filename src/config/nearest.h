// The known word that a mistyped one was probably meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aerie {

// Edits (insert, delete, replace, swap of neighbours) from `a` to `b`; case, '-' and '_' do not
// count.
int edit_distance(std::string_view a, std::string_view b);

// The nearest of `known`; empty where none is near enough to be worth naming.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

// "; did you mean tp_size?", or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace aerie
