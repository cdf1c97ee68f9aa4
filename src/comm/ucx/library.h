// UCX, opened at run time by the process that makes a UCX fabric, and by no other: libucm patches
// mmap and libucs installs signal handlers when they are loaded, which a frontend, a test or a
// sanitizer must not have. Private to comm/ucx.
#pragma once

#include <ucp/api/ucp.h>

#include "base/result.h"

namespace aerie::comm {

#define AERIE_UCX_FUNCTIONS(X)        \
    X(ucp_config_read)                \
    X(ucp_config_modify)              \
    X(ucp_config_release)             \
    X(ucp_init_version)               \
    X(ucp_cleanup)                    \
    X(ucp_worker_create)              \
    X(ucp_worker_destroy)             \
    X(ucp_worker_get_address)         \
    X(ucp_worker_release_address)     \
    X(ucp_worker_get_efd)             \
    X(ucp_worker_arm)                 \
    X(ucp_worker_progress)            \
    X(ucp_worker_set_am_recv_handler) \
    X(ucp_ep_create)                  \
    X(ucp_ep_close_nbx)               \
    X(ucp_am_send_nbx)                \
    X(ucp_am_recv_data_nbx)           \
    X(ucp_request_check_status)       \
    X(ucp_request_free)               \
    X(ucp_mem_map)                    \
    X(ucp_mem_query)                  \
    X(ucp_mem_unmap)                  \
    X(ucp_rkey_pack)                  \
    X(ucp_rkey_buffer_release)        \
    X(ucp_ep_rkey_unpack)             \
    X(ucp_rkey_ptr)                   \
    X(ucp_rkey_destroy)               \
    X(ucs_status_string)

// UCX's functions under their own names.
struct Ucx {
#define AERIE_UCX_MEMBER(name) decltype(&::name) name;
    AERIE_UCX_FUNCTIONS(AERIE_UCX_MEMBER)
#undef AERIE_UCX_MEMBER
};

// Sets UCX's environment (see library.cc; variables that are set already are left alone) and loads
// the library once. Any thread; the result lives as long as the process.
Result<const Ucx*> load_ucx();

}  // namespace aerie::comm

// Returns from the calling function with an Error where a UCX call fails.
#define RETURN_IF_UCX_ERROR(ucx, expression, ...)                                 \
    do {                                                                          \
        if (const ucs_status_t ucs_status_ = (expression); ucs_status_ != UCS_OK) \
            return error("{}: {}", fmt::format(__VA_ARGS__),                      \
                         (ucx).ucs_status_string(ucs_status_));                   \
    } while (false)
