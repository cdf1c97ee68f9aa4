// Names that replies give to themselves and to tool calls.
#pragma once

#include <string>

namespace aerie::api {

// From the system's random numbers. Any thread.
std::string random_hex(int num_digits);

}  // namespace aerie::api
