#include <thread>

#include "app/host_session.h"
#include "app/hosts.h"
#include "app/launch_settings.h"
#include "base/log.h"
#include "base/thread.h"

namespace aerie {
namespace {

// --in-process: a host that ends is not started again.
class HostThreads final : public Hosts {
  public:
    HostThreads(const LoadedConfig& loaded, control::Hub& hub)
        : loaded_(loaded), hub_(hub), pool_(pool_options(loaded.config)) {}
    ~HostThreads() override { stop(); }

    // All fabrics exist before the first session: a peer may be connected as soon as it is named.
    Status start() override {
        const auto network = comm::make_local_network();
        for (int node = 0; node < loaded_.config.cluster.nodes; ++node) {
            const NodePlace& place = loaded_.placement.nodes[node];
            if (place.attention_ranks.empty() && place.expert_ranks.empty()) continue;
            fabrics_.push_back(comm::make_local_fabric(network, node, 1));
        }
        for (const auto& fabric : fabrics_) {
            threads_.emplace_back([this, &fabric = *fabric] { run(fabric); });
        }
        return {};
    }

    void stop() override {
        if (threads_.empty()) return;
        hub_.shut_down_hosts(kHostStopSeconds);
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
    }

  private:
    void run(comm::Fabric& fabric) {
        set_thread_name("host");
        const auto end =
            run_host_session({loaded_, fabric, pool_}, control::local_uplink(hub_));
        if (end && end.value().how == control::SessionEnd::kShutdown) return;
        const std::string why = end ? end.value().why : end.message();
        log_error("host {} has ended: {}", hub_.label(fabric.node()), why);
        hub_.fail_start(fmt::format("host {} could not start: {}", hub_.label(fabric.node()), why));
    }

    const LoadedConfig& loaded_;
    control::Hub& hub_;
    ThreadPool pool_;
    std::vector<std::unique_ptr<comm::Fabric>> fabrics_;
    std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Hosts> hosts_in_process(const LoadedConfig& loaded, control::Hub& hub) {
    return std::make_unique<HostThreads>(loaded, hub);
}

}  // namespace aerie
