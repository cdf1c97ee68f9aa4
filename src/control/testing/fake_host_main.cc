// control_fake_host NODE EPOCH LIFE_FD HUB_ADDRESS: a host process without a model, as control_test
// starts it. Exit status: 0 when it was told to shut down, 100 when the launcher is gone, else 110 +
// SessionEnd.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "control/grpc_transport.h"
#include "control/supervisor.h"
#include "control/testing/fake_host.h"

using namespace aerie;
using namespace aerie::control;

int main(int argc, char** argv) {
    if (argc != 5) return 101;
    const int node = std::atoi(argv[1]);
    const auto epoch = static_cast<uint32_t>(std::atoi(argv[2]));
    LauncherWatch watch(std::atoi(argv[3]), [] { _exit(100); });
    auto uplink = connect_to_hub(argv[4], 20);
    if (!uplink) {
        std::fprintf(stderr, "%s\n", uplink.message().c_str());
        return 102;
    }
    HostLink link(fake_identity(node, epoch), std::move(uplink).value());
    const Placement placement = fake_placement();
    FakeRuntime runtime(placement, node, link);
    FakePeers peers(link);
    link.start(peers);
    link.loaded(runtime);
    const HostLink::End end = link.wait_end(after(300));
    link.stop();
    return end.how == SessionEnd::kShutdown ? 0 : 110 + static_cast<int>(end.how);
}
