#include <algorithm>
#include <atomic>
#include <ctime>

#include "app/hosts.h"
#include "app/launch_settings.h"
#include "base/log.h"
#include "control/grpc_transport.h"
#include "control/stop_signals.h"
#include "control/supervisor.h"

namespace aerie {
namespace {

constexpr double kKillGraceSeconds = 2;  // from a lost connection to SIGKILL: it may be ending

// Hosts are told what the launcher has chosen for --device auto.
std::vector<std::string> without_device(const std::vector<std::string>& arguments) {
    std::vector<std::string> others;
    for (size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i] == "--device")
            ++i;  // and its value
        else if (!arguments[i].starts_with("--device="))
            others.push_back(arguments[i]);
    }
    return others;
}

control::SupervisorOptions supervisor_options(const LoadedConfig& loaded,
                                              const std::vector<std::string>& arguments,
                                              const std::string& control) {
    control::SupervisorOptions options;
    for (const int node : nodes_here(loaded.config)) {
        const NodePlace& place = loaded.placement.nodes[node];
        if (place.attention_ranks.empty() && place.expert_ranks.empty()) continue;
        options.hosts.push_back({node, control::host_label(loaded.placement, node)});
    }
    const int64_t card_part = loaded.memory.card_memory;
    // What the launcher has found out about the machine, the hosts take from it.
    const std::string device = name_of(loaded.config.device);
    options.arguments = [arguments = without_device(arguments), control, card_part,
                         device](int node, uint32_t epoch, int life_fd) {
        std::vector<std::string> all = {"aerie",         "host",
                                        "--node",        std::to_string(node),
                                        "--epoch",       std::to_string(epoch),
                                        "--life-fd",     std::to_string(life_fd),
                                        "--control",     control,
                                        "--card-part",   std::to_string(card_part),
                                        "--device",      device};
        all.insert(all.end(), arguments.begin(), arguments.end());
        return all;
    };
    return options;
}

class HostProcesses final : public Hosts, public control::SupervisorEvents {
  public:
    HostProcesses(const LoadedConfig& loaded, const std::vector<std::string>& arguments,
                  control::Hub& hub)
        : loaded_(loaded), arguments_(arguments), hub_(hub) {}
    ~HostProcesses() override { stop(); }

    Status start() override {
        auto server = control::listen_for_hosts(control_address(loaded_.config), hub_);
        if (!server) return server.error();
        server_ = std::move(server).value();
        std::string address = control_address(loaded_.config);
        address = fmt::format("{}:{}", address.substr(0, address.rfind(':')), server_->port());
        supervisor_ = std::make_unique<control::Supervisor>(
            supervisor_options(loaded_, arguments_, address), *this);
        hub_.on_lost([this](int node, uint32_t epoch, const std::string&) {
            supervisor_->kill(node, epoch, kKillGraceSeconds);
        });
        supervisor_->start();
        return {};
    }

    void stop() override {
        if (!server_) return;
        supervisor_->stop_restarting();
        hub_.shut_down_hosts(kHostStopSeconds);
        supervisor_->stop(kHostStopSeconds);
        server_.reset();
    }

  private:
    void host_died(const control::HostDeath& death) override {
        hub_.host_died(death.node, death.epoch, death.describe());
        // It has said why; another try would end the same way.
        if (!death.signaled && death.code != 0) {
            hub_.fail_start(fmt::format("host {} could not start: {}; its own lines above say why",
                                        hub_.label(death.node), death.describe()));
        }
    }
    void gave_up(int, const std::string& why) override {
        log_error("{}", why);
        hub_.fail_start(why);
    }

    const LoadedConfig& loaded_;
    const std::vector<std::string>& arguments_;
    control::Hub& hub_;
    std::unique_ptr<control::ControlServer> server_;
    std::unique_ptr<control::Supervisor> supervisor_;
};

// Without a hub: node-0's hears of the hosts itself.
class RemoteEvents final : public control::SupervisorEvents {
  public:
    void host_died(const control::HostDeath& death) override {
        if (death.signaled || death.code != 0) return;
        log_info("node-{} was told to shut down", death.node);
        told_to_end = true;
        signals->raise();
    }
    void gave_up(int, const std::string& why) override {
        log_error("{}", why);
        failed = true;
        signals->raise();
    }
    control::StopSignals* signals = nullptr;
    std::atomic<bool> failed{false}, told_to_end{false};
};

}  // namespace

std::unique_ptr<Hosts> hosts_as_processes(const LoadedConfig& loaded,
                                          const std::vector<std::string>& arguments,
                                          control::Hub& hub) {
    return std::make_unique<HostProcesses>(loaded, arguments, hub);
}

int run_remote_hosts(const LoadedConfig& loaded, const std::vector<std::string>& arguments) {
    const std::string control = control_address(loaded.config);
    control::StopSignals signals([](int) {});
    RemoteEvents events;
    events.signals = &signals;
    auto options = supervisor_options(loaded, arguments, control);
    // Above those of an earlier launcher on this machine, which is not remembered.
    options.first_epoch = static_cast<uint32_t>(std::time(nullptr) - 1'700'000'000);
    control::Supervisor supervisor(options, events);
    supervisor.start();
    log_info("the hosts of this machine join node-0 at {}, which serves HTTP on port {}", control,
             loaded.config.server.port);
    signals.wait();
    // Those with experts are told after those with attention have ended.
    supervisor.stop(events.told_to_end ? 2 * kHostStopSeconds : 0);
    return events.failed ? 1 : 0;
}

}  // namespace aerie
