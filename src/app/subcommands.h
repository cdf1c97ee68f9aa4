// The subcommands of aerie, a file each. `arguments` are those after the subcommand's name; the
// result is the exit status: 0 success, 1 failure, 2 a mistake in the configuration or the call.
#pragma once

#include <string>
#include <vector>

namespace aerie {

int run_serve(const std::vector<std::string>& arguments);         // serve.cc
int run_bench(const std::vector<std::string>& arguments);         // bench.cc
int run_check(const std::vector<std::string>& arguments);         // check.cc
int run_host_process(const std::vector<std::string>& arguments);  // host_process.cc

}  // namespace aerie
