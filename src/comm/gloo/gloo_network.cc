// The Gloo backend: a device, which is a thread that waits for sockets, and a GlooPair for each
// peer.
#include <gloo/transport/tcp/device.h>

#include "base/log.h"
#include "comm/gloo/gloo_pair.h"
#include "comm/network/network_fabric.h"

namespace aerie::comm {
namespace {

class GlooNetwork final : public Network {
  public:
    GlooNetwork(std::shared_ptr<gloo::transport::Device> device, int node)
        : device_(std::move(device)), node_(node) {}

    const char* name() const override { return "gloo"; }
    Result<std::unique_ptr<Pair>> make_pair(Ports& ports, int peer, uint32_t peer_epoch) override {
        return GlooPair::make(*device_, ports, node_, peer, peer_epoch);
    }

  private:
    const std::shared_ptr<gloo::transport::Device> device_;  // shared with its contexts
    const int node_;
};

}  // namespace

Result<std::unique_ptr<Fabric>> make_gloo_fabric(const NetworkOptions& options) {
    auto fabric = std::make_unique<NetworkFabric>(options);
    RETURN_IF_ERROR(fabric->listen());
    std::unique_ptr<Network> network;
    const std::string& address = fabric->listener().address();
    try {
        const WithoutSigpipe quiet;
        gloo::transport::tcp::attr attr;
        attr.hostname = address.substr(0, address.rfind(':'));
        network =
            std::make_unique<GlooNetwork>(gloo::transport::tcp::CreateDevice(attr), options.node);
    } catch (const std::exception& failure) {
        return error("Gloo on {}: {}", address, failure.what());
    }
    RETURN_IF_ERROR(fabric->start(std::move(network)));
    log_info("messages between hosts: Gloo over TCP, node-{} with epoch {} at {}", options.node,
             options.epoch, address);
    return std::unique_ptr<Fabric>(std::move(fabric));
}

}  // namespace aerie::comm
