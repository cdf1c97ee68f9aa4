// A host session: one life of one node's host, in a process of its own or as threads of the
// launcher.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "comm/fabric.h"
#include "config/load.h"
#include "control/host_link.h"

namespace aerie {

struct HostSession {
    const LoadedConfig& loaded;
    comm::Fabric& fabric;  // says which node and which life
    ThreadPool& pool;      // for the ranks' parallel loops
};

// Joins, connects, loads and serves until the session ends; then everything has been stopped. The
// error says why the host could not be loaded.
Result<control::HostLink::End> run_host_session(const HostSession& session,
                                                std::unique_ptr<control::Uplink> uplink);

// The pool of one process: a worker a core beside who calls. Hosts that share a machine all have as
// many: while one waits for another, its cores are free.
ThreadPoolOptions pool_options(const Config& config);

}  // namespace aerie
