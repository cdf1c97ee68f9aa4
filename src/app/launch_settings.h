// Limits of a server's start and stop, and where its parts meet.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "config/load.h"

namespace aerie {

constexpr double kJoinLimitSeconds = 120;   // for every host to join; again to reach its peers
constexpr double kLoadLimitSeconds = 3600;  // for all weights to be loaded
constexpr double kDrainSeconds = 30;        // for running requests after SIGTERM
constexpr double kHostStopSeconds = 10;     // for hosts to end; for attention, then for experts

bool all_nodes_here(const Config& config);

// Where node-0's launcher listens for hosts: this machine's loopback where every node runs here;
// else the rendezvous, or node-0's address. The port is the first of port_range; without a range any
// free one (0) on the loopback, and the port after the HTTP port elsewhere.
std::string control_address(const Config& config);

// The address of this machine at which peers reach a host. The error names the rendezvous.
Result<std::string> fabric_host(const Config& config, int node, const std::string& control);

// [node] where messages say that a node is expected.
std::vector<std::string> node_addresses(const Config& config);

}  // namespace aerie
