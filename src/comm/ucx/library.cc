#include "comm/ucx/library.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <optional>

namespace aerie::comm {
namespace {

// Everything that is set for UCX in a process, apart from the transports and the network device,
// which a fabric's options give. A variable that the user has set wins.
constexpr struct {
    const char* name;
    const char* value;
} kEnvironment[] = {
    // A server has its own handlers and its own log; UCX reports peers that died as errors in
    // colour, and the fabric reports them itself.
    {"UCX_HANDLE_ERRORS", "none"},
    {"UCX_ERROR_SIGNALS", ""},
    {"UCX_LOG_LEVEL", "fatal"},
    {"UCX_WARN_UNUSED_ENV_VARS", "n"},
    // No patching of mmap, munmap and madvise: nothing here registers memory that
    // was mapped by others.
    {"UCX_MEM_EVENTS", "n"},
    {"UCX_MEM_MMAP_HOOK_MODE", "none"},
    {"UCX_MEM_MALLOC_HOOKS", "n"},
    {"UCX_RCACHE_ENABLE", "n"},
    // System V segments are marked for removal as soon as they are made: kill -9 leaves nothing,
    // their ids are not soon used again, and a container's small /dev/shm does not matter.
    {"UCX_SYSV_ERROR_HANDLING", "y"},
    {"UCX_SYSV_HUGETLB_MODE", "n"},
    {"UCX_POSIX_ERROR_HANDLING", "y"},
    // No operation that leaves a request of UCP in the hands of the TCP transport: UCX 1.13 ends it
    // a
    // second time, and the process by an assertion, when the peer resets the connection. TCP copies
    // anyway; shared memory still fetches large payloads with one copy (CMA).
    {"UCX_TCP_PUT_ENABLE", "n"},
    {"UCX_ZCOPY_THRESH", "inf"},
    // The fabric's own socket to each peer says when it has died, sooner than this would.
    {"UCX_KEEPALIVE_INTERVAL", "inf"},
};

Result<const Ucx*> load() {
    for (const auto& variable : kEnvironment) setenv(variable.name, variable.value, 0);
    void* library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return error("UCX cannot be loaded: {}", dlerror());
    static Ucx ucx;
#define AERIE_UCX_LOOK_UP(name)                                             \
    ucx.name = reinterpret_cast<decltype(ucx.name)>(dlsym(library, #name)); \
    if (ucx.name == nullptr) return error("libucp.so.0 has no {}", #name);
    AERIE_UCX_FUNCTIONS(AERIE_UCX_LOOK_UP)
#undef AERIE_UCX_LOOK_UP
    return &ucx;
}

}  // namespace

Result<const Ucx*> load_ucx() {
    static const Result<const Ucx*> loaded = load();
    return loaded;
}

}  // namespace aerie::comm
