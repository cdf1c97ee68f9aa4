// aerie serve: the launcher. Starts the hosts, waits until all of them have joined and reached each
// other, serves, and stops: the frontend, then the attention hosts, then the expert hosts.
#include <signal.h>

#include <algorithm>
#include <cstdio>

#include "app/card_support.h"
#include "app/fingerprint.h"
#include "app/hosts.h"
#include "app/http_api.h"
#include "app/launch_settings.h"
#include "app/subcommands.h"
#include "base/log.h"
#include "config/command_line.h"
#include "config/keys.h"
#include "config/report.h"
#include "control/stop_signals.h"

namespace aerie {
namespace {

void say(const std::string& line) {
    std::fprintf(stdout, "%s\n", line.c_str());
    std::fflush(stdout);
}

control::HubOptions hub_options(const LoadedConfig& loaded, metrics::Registry& registry) {
    return {.identity = {.version = AERIE_VERSION,
                         .config_fingerprint = config_fingerprint(loaded.config),
                         .model_fingerprint = model_fingerprint(loaded.config.settings.model_path)},
            .addresses = node_addresses(loaded.config),
            .registry = &registry,
            .watchdog_timeout_s = loaded.config.settings.watchdog_timeout};
}

// Every host is live: each has exchanged messages with all that it needs.
void say_started(const LoadedConfig& loaded) {
    const Config& config = loaded.config;
    if (config.separated()) {
        say(attention_group_line(config));
        say(expert_group_line(config));
        say(kv_transfer_line(config));
        say(kEnabledLine);
    } else {
        say(disabled_line(config, loaded.placement));
    }
    say(placement_table(loaded) + '\n' + kv_lines(loaded) + '\n' + sizes_line(loaded));
    say(kReadyLine);
}

int fail(const std::string& why) {
    log_error("{}", why);
    return 1;
}

int serve(const LoadedConfig& loaded, const std::vector<std::string>& arguments) {
    metrics::Registry registry;
    control::Hub hub(loaded.placement, hub_options(loaded, registry));
    auto api = start_http_api(loaded, hub, registry);  // /health says 503 until all are live
    if (!api) return fail(api.message());
    const auto hosts = loaded.config.in_process ? hosts_in_process(loaded, hub)
                                                : hosts_as_processes(loaded, arguments, hub);
    control::StopSignals signals([&hub](int count) {
        hub.stop_accepting();
        if (count > 1) hub.abort_all("the server was stopped");
    });
    if (loaded.config.separated()) say(kInitializingLine);
    Status started = hosts->start();
    if (started) started = hub.wait_started(kJoinLimitSeconds, kLoadLimitSeconds);
    if (started) {
        say_started(loaded);
        signals.wait();
    }
    (*api)->frontend->stop(kDrainSeconds);
    hosts->stop();
    hub.set_sink(nullptr);
    return started.ok() || signals.count() > 0 ? 0 : fail(started.message());
}

}  // namespace

int run_serve(const std::vector<std::string>& arguments) {
    control::block_stop_signals();  // before any thread, as a look for GPUs starts some
    const StartedConfig started = config_from_arguments("serve", arguments);
    if (started.exit_status >= 0) return started.exit_status;
    const LoadedConfig& loaded = started.loaded;
    if (const Status runs = check_card_support(loaded); !runs) return fail(runs.message()), 2;
    set_log_level(loaded.config.settings.log_level);
    signal(SIGPIPE, SIG_IGN);
    const std::vector<int> here = nodes_here(loaded.config);
    const bool serves = std::find(here.begin(), here.end(), 0) != here.end();
    return serves ? serve(loaded, arguments) : run_remote_hosts(loaded, arguments);
}

}  // namespace aerie
