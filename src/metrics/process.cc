#include "metrics/process.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace aerie::metrics {
namespace {

struct ProcessStat {
    double cpu_seconds;
    double start_seconds;  // after boot
    double virtual_bytes;
    double resident_bytes;
};

// /proc/self/stat, counted from the field after the name, which may hold blanks: field 3 of proc(5)
// is the first here.
std::optional<ProcessStat> read_stat() {
    std::FILE* file = std::fopen("/proc/self/stat", "re");
    if (!file) return std::nullopt;
    char line[1024];
    const size_t length = std::fread(line, 1, sizeof(line) - 1, file);
    std::fclose(file);
    line[length] = 0;
    const char* rest = std::strrchr(line, ')');
    if (!rest) return std::nullopt;
    unsigned long long user, system, start, size;
    long long resident;
    const int num_read = std::sscanf(
        rest + 1,
        " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d %llu %llu "
        "%lld",
        &user, &system, &start, &size, &resident);
    if (num_read != 5) return std::nullopt;
    const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    return ProcessStat{static_cast<double>(user + system) / ticks,
                       static_cast<double>(start) / ticks, static_cast<double>(size),
                       static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE))};
}

std::optional<double> boot_time() {  // Unix time
    std::FILE* file = std::fopen("/proc/stat", "re");
    if (!file) return std::nullopt;
    char line[4096];
    std::optional<double> result;
    while (!result && std::fgets(line, sizeof(line), file))
        if (std::strncmp(line, "btime ", 6) == 0) result = std::atof(line + 6);
    std::fclose(file);
    return result;
}

std::optional<double> num_open_files() {
    DIR* dir = opendir("/proc/self/fd");
    if (!dir) return std::nullopt;
    int count = -3;  // ".", ".." and this directory itself
    while (readdir(dir)) ++count;
    closedir(dir);
    return count;
}

void append(Snapshot& snapshot, const Metric& row, double value) {
    Family family{.name = std::string(row.name), .help = std::string(row.help), .type = row.type};
    family.samples.push_back(Sample{.value = value});
    snapshot.push_back(std::move(family));
}

}  // namespace

void append_process_metrics(Snapshot& snapshot) {
    if (const auto stat = read_stat()) {
        append(snapshot, metric("process_cpu_seconds_total"), stat->cpu_seconds);
        append(snapshot, metric("process_virtual_memory_bytes"), stat->virtual_bytes);
        append(snapshot, metric("process_resident_memory_bytes"), stat->resident_bytes);
        if (const auto boot = boot_time())
            append(snapshot, metric("process_start_time_seconds"), *boot + stat->start_seconds);
    }
    if (const auto open = num_open_files()) append(snapshot, metric("process_open_fds"), *open);
}

}  // namespace aerie::metrics
