#include "model/load_jobs.h"

#include <atomic>
#include <mutex>

#include "base/clock.h"
#include "base/log.h"

namespace aerie::model {
namespace {

constexpr double kProgressSeconds = 5;

}  // namespace

Status LoadJobs::run(Stream& stream, const std::string& what) {
    const TimePoint start = Clock::now();
    const uint64_t bytes_before = store_.read_bytes();
    std::vector<Status> results(jobs_.size());
    std::atomic<size_t> num_done{0};
    std::atomic<bool> failed{false};
    std::mutex progress_mutex;
    TimePoint last_report = start;
    stream.parallel_for(static_cast<int64_t>(jobs_.size()), [&](int64_t i) {
        if (failed) return;
        results[i] = jobs_[i]();
        if (!results[i]) failed = true;
        const size_t done = ++num_done;
        std::lock_guard lock(progress_mutex);
        if (seconds_since(last_report) < kProgressSeconds) return;
        last_report = Clock::now();
        log_info("{}: {} of {} weights loaded, {:.1f} GB", what, done, jobs_.size(),
                 static_cast<double>(store_.read_bytes() - bytes_before) * 1e-9);
    });
    for (Status& result : results) RETURN_IF_ERROR(std::move(result));
    // Ranks that load at the same time share one count, so this is the process's rate.
    const double seconds = seconds_since(start);
    const auto bytes = static_cast<double>(store_.read_bytes() - bytes_before);
    log_info("{}: weights loaded from {}: {:.3f} GB in {:.2f} s ({:.2f} GB/s)", what,
             store_.description(), bytes * 1e-9, seconds, bytes * 1e-9 / std::max(seconds, 1e-9));
    jobs_.clear();
    return {};
}

}  // namespace aerie::model
