// Hosts: all host processes of this machine, or all hosts as threads of this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/load.h"
#include "control/hub.h"

namespace aerie {

class Hosts {
  public:
    virtual ~Hosts() = default;
    // Starts them; the hub hears of each.
    virtual Status start() = 0;
    // Those with attention end first, then those with experts. Nothing of them is left when this
    // returns.
    virtual void stop() = 0;
};

// Both arguments outlive the hosts, as the hub does. `arguments`: serve's own, for the hosts.
std::unique_ptr<Hosts> hosts_as_processes(const LoadedConfig& loaded,
                                          const std::vector<std::string>& arguments,
                                          control::Hub& hub);
std::unique_ptr<Hosts> hosts_in_process(const LoadedConfig& loaded, control::Hub& hub);

// On a machine without node-0: starts and watches this machine's hosts until they were told to shut
// down, or a stop signal comes. Returns the exit status.
int run_remote_hosts(const LoadedConfig& loaded, const std::vector<std::string>& arguments);

}  // namespace aerie
