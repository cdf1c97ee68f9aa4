// aerie host: one node's host process, as `aerie serve` starts it. Not for people: the launcher
// passes its own arguments on, with which node this is, where to join, and the memory of a card,
// which it has measured before any host ran.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <optional>

#include "app/host_session.h"
#include "app/launch_settings.h"
#include "app/subcommands.h"
#include "base/log.h"
#include "config/command_line.h"
#include "config/environment.h"
#include "control/grpc_transport.h"
#include "control/supervisor.h"

namespace aerie {
namespace {

constexpr unsigned kStopSeconds = 10;  // from the session's end to the process's

int fail(const std::string& message) {
    log_error("{}", message);
    return 1;
}

std::optional<int64_t> number(const std::string& text) {
    int64_t value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

// The terminal's and the service manager's stop signals reach every process; the launcher decides
// when its hosts end. They end with it even if it is killed.
std::unique_ptr<control::LauncherWatch> tie_to_launcher(int life_fd) {
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return std::make_unique<control::LauncherWatch>(life_fd, [] {
        log_error("the launcher is gone");
        _exit(1);
    });
}

Result<std::unique_ptr<comm::Fabric>> make_fabric(CommBackend backend,
                                                  const comm::NetworkOptions& options) {
    return backend == CommBackend::kGloo ? comm::make_gloo_fabric(options)
                                         : comm::make_ucx_fabric(options);
}

// One fabric where both kinds of messages go over UCX, which gives each peer a worker of its own;
// two otherwise, since what waits behind KV on a connection of Gloo's waits for all of it.
Result<std::unique_ptr<comm::Fabric>> make_fabrics(const AeSeparation& separation,
                                                   const comm::NetworkOptions& options) {
    auto exchange = make_fabric(separation.comm_backend, options);
    if (!exchange || (separation.comm_backend != CommBackend::kGloo &&
                      separation.kv_backend != CommBackend::kGloo)) {
        return exchange;
    }
    auto kv = make_fabric(separation.kv_backend, options);
    if (!kv) return kv;
    return comm::make_split_fabric(*std::move(exchange), *std::move(kv));
}

int run(const LoadedConfig& loaded, int node, uint32_t epoch, const std::string& control) {
    const auto host = fabric_host(loaded.config, node, control);
    if (!host) return fail(host.message());
    comm::NetworkOptions options{.node = node, .epoch = epoch, .host = host.value()};
    if (const auto range = parse_port_range(loaded.config.cluster.port_range)) {
        options.first_port = range->first + 1;  // the first is the launcher's
        options.last_port = range->second;
    }
    const bool has_peers = loaded.config.cluster.nodes > 1;
    Result<std::unique_ptr<comm::Fabric>> fabric =
        has_peers ? make_fabrics(loaded.config.ae_separation, options)
                  : comm::make_local_fabric(comm::make_local_network(), node, epoch);
    if (!fabric) return fail(fabric.message());
    auto uplink = control::connect_to_hub(control, kJoinLimitSeconds);
    if (!uplink) return fail(uplink.message());
    ThreadPool pool(pool_options(loaded.config));
    const auto end = run_host_session({loaded, **fabric, pool}, std::move(uplink).value());
    alarm(kStopSeconds);  // ends the process if its threads do not
    if (!end) return fail(end.message());
    return end.value().how == control::SessionEnd::kShutdown ? 0 : fail(end.value().why);
}

}  // namespace

int run_host_process(const std::vector<std::string>& arguments) {
    std::string node_text, epoch_text, life_fd_text, card_part_text, control;
    const ParsedArguments parsed = parse_command_line(
        "host", arguments,
        {{"--node", "the node's number", nullptr, &node_text},
         {"--epoch", "this life's number", nullptr, &epoch_text},
         {"--life-fd", "a descriptor that closes with the launcher", nullptr, &life_fd_text},
         {"--control", "HOST:PORT of node-0's launcher", nullptr, &control},
         {"--card-part", "bytes of a card that this host has", nullptr, &card_part_text}});
    const auto node = number(node_text), epoch = number(epoch_text), life_fd = number(life_fd_text),
               part = number(card_part_text);
    if (!node || !epoch || !life_fd || !part || control.empty()) {
        std::fputs("aerie host is started by aerie serve, not by hand\n", stderr);
        return 2;
    }
    set_log_label(fmt::format("node-{}", *node));
    const auto watch = tie_to_launcher(static_cast<int>(*life_fd));
    CommandLine command_line = parsed.command_line;
    command_line.card_part = *part;
    const LoadedConfig loaded = load_config(command_line, probe_machine());
    for (const std::string& mistake : loaded.diagnostics.errors) log_error("{}", mistake);
    if (!loaded.diagnostics.ok()) return 2;
    set_log_level(loaded.config.settings.log_level);
    return run(loaded, static_cast<int>(*node), static_cast<uint32_t>(*epoch), control);
}

}  // namespace aerie
