// The UCX backend: a context for the process, and a UcxPair for each peer.
#include <sys/mman.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

#include "base/check.h"
#include "base/log.h"
#include "comm/network/network_fabric.h"
#include "comm/ucx/ucx_pair.h"

namespace aerie::comm {
namespace {

// Whether other processes can map the memory there.
bool is_shared(const void* address) {
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        uintptr_t begin = 0, end = 0;
        char access[5] = {};
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, access) == 3 &&
            begin <= wanted && wanted < end)
            return access[3] == 's';
    }
    return false;
}

class UcxNetwork final : public Network {
  public:
    explicit UcxNetwork(const Ucx& ucx) : ucx_(ucx) {}
    ~UcxNetwork() override {
        if (context_ != nullptr) ucx_.ucp_cleanup(context_);
    }
    Status open(const NetworkOptions& options, const Listener& listener);

    const char* name() const override { return "ucx"; }
    Result<std::unique_ptr<Pair>> make_pair(Ports& ports, int peer, uint32_t peer_epoch) override {
        return UcxPair::make(ucx_, context_, ports, peer, peer_epoch);
    }
    Result<Memory> allocate(size_t bytes) override;
    void free(std::byte* base) override;

  private:
    const Ucx& ucx_;
    ucp_context_h context_ = nullptr;
    bool shares_memory_ = false;
    std::mutex mutex_;
    std::map<std::byte*, ucp_mem_h> allocated_;  // guarded by mutex_
};

Status UcxNetwork::open(const NetworkOptions& options, const Listener& listener) {
    ucp_config_t* config = nullptr;
    RETURN_IF_UCX_ERROR(ucx_, ucx_.ucp_config_read(nullptr, nullptr, &config), "UCX settings");
    const std::string transports = options.transports.empty() ? "sysv,cma,tcp" : options.transports;
    const std::string devices = options.devices.empty() ? listener.interface() : options.devices;
    shares_memory_ = transports.find("sysv") != std::string::npos ||
                     transports.find("posix") != std::string::npos;
    std::vector<std::pair<const char*, std::string>> settings{{"TLS", transports}};
    // One segment takes a whole eager message.
    const std::string segment = std::to_string(UcxPair::kSegmentBytes);
    for (const char* name : {"SYSV_SEG_SIZE", "POSIX_SEG_SIZE", "TCP_TX_SEG_SIZE"})
        settings.emplace_back(name, segment);
    for (const char* name : {"SYSV_RX_BUFS_GROW", "POSIX_RX_BUFS_GROW"})
        settings.emplace_back(name, "64");  // as many as the queue is long; 512 would be 17 MB
    if (!devices.empty()) settings.emplace_back("NET_DEVICES", devices);
    if (options.first_port > 0)
        settings.emplace_back("TCP_PORT_RANGE",
                              fmt::format("{}-{}", options.first_port, options.last_port));
    ucs_status_t status = UCS_OK;
    for (const auto& [name, value] : settings)
        if (status == UCS_OK) status = ucx_.ucp_config_modify(config, name, value.c_str());

    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
    params.mt_workers_shared = 1;
    if (status == UCS_OK)
        status = ucx_.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
    ucx_.ucp_config_release(config);
    RETURN_IF_UCX_ERROR(ucx_, status, "UCX with transports {} on {}", transports,
                        devices.empty() ? "all devices" : devices);
    log_info("messages between hosts: UCX over {} on {}, node-{} with epoch {} at {}", transports,
             devices.empty() ? "all devices" : devices, options.node, options.epoch,
             listener.address());
    return {};
}

// A shared-memory segment that is marked for removal at once: peers that have its key can still
// attach it, and it goes with the last process that has it.
Result<Network::Memory> UcxNetwork::allocate(size_t bytes) {
    if (!shares_memory_) return Memory{};
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.length = bytes;
    params.flags = UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_NONBLOCK;
    ucp_mem_h memory = nullptr;
    RETURN_IF_UCX_ERROR(ucx_, ucx_.ucp_mem_map(context_, &params, &memory),
                        "{} bytes of shared memory", bytes);
    ucp_mem_attr_t attributes{};
    attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    void* packed = nullptr;
    size_t packed_bytes = 0;
    ucs_status_t status = ucx_.ucp_mem_query(memory, &attributes);
    // Where there is no room for a segment UCX takes memory that is nobody else's.
    const bool shared = status == UCS_OK && is_shared(attributes.address);
    if (shared) status = ucx_.ucp_rkey_pack(context_, memory, &packed, &packed_bytes);
    if (!shared || status != UCS_OK) ucx_.ucp_mem_unmap(context_, memory);
    RETURN_IF_UCX_ERROR(ucx_, status, "the key of {} bytes of shared memory", bytes);
    if (!shared)
        return error("{} bytes of shared memory: the machine gives none, see kernel.shmmax, "
                     "kernel.shmall and ipcs -lm",
                     bytes);
    // Heeded where the kernel's shmem_enabled is "advise".
    madvise(attributes.address, bytes, MADV_HUGEPAGE);
    const auto address = reinterpret_cast<uint64_t>(attributes.address);
    Memory out{static_cast<std::byte*>(attributes.address),
               std::string(reinterpret_cast<const char*>(&address), sizeof(address))};
    out.extra.append(static_cast<const char*>(packed), packed_bytes);
    ucx_.ucp_rkey_buffer_release(packed);
    std::lock_guard lock(mutex_);
    allocated_[out.base] = memory;
    return out;
}

void UcxNetwork::free(std::byte* base) {
    std::lock_guard lock(mutex_);
    const auto found = allocated_.find(base);
    CHECK(found != allocated_.end(), "memory that was not allocated here");
    ucx_.ucp_mem_unmap(context_, found->second);
    allocated_.erase(found);
}

}  // namespace

Result<std::unique_ptr<Fabric>> make_ucx_fabric(const NetworkOptions& options) {
    auto fabric = std::make_unique<NetworkFabric>(options);
    RETURN_IF_ERROR(fabric->listen());
    auto ucx = load_ucx();
    if (!ucx) return ucx.error();
    auto network = std::make_unique<UcxNetwork>(**ucx);
    RETURN_IF_ERROR(network->open(options, fabric->listener()));
    RETURN_IF_ERROR(fabric->start(std::move(network)));
    return std::unique_ptr<Fabric>(std::move(fabric));
}

}  // namespace aerie::comm
