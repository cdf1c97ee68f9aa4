// The only place that reads environment variables for the configuration, and the machine itself.
#pragma once

#include <optional>
#include <string>

#include "config/load.h"

namespace aerie {

// Which node this machine is, as a launcher's environment says it. The first of these that is set
// wins: torch's (NODE_RANK or GROUP_RANK; MASTER_ADDR, MASTER_PORT), Slurm's (SLURM_NODEID;
// SLURM_LAUNCH_NODE_IPADDR), Kubernetes' (JOB_COMPLETION_INDEX of an indexed Job,
// the ordinal at the end of a StatefulSet pod's HOSTNAME where KUBERNETES_SERVICE_HOST is set).
struct NodeIdentity {
    std::optional<int> node_rank;
    std::string rendezvous;  // "host:port"; empty: not said
};
NodeIdentity identity_from_environment();

// AERIE_TEST_FAULT: the fault that tests plant (base/fault.h); empty: none.
std::string test_fault_from_environment();

// GPUs that this build can use, and the host memory that is free now (what the kernel calls
// available, or what is left of the control group's limit where that is less).
Machine probe_machine();

// `address` (a name or an IP) is this machine.
bool is_local_address(const std::string& address);

}  // namespace aerie
