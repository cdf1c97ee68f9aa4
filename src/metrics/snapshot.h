// Snapshot: the values of a registry at one moment, as plain data that travels between processes
// (proto::MetricFamily has the same fields), is merged and printed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "metrics/names.h"

namespace aerie::metrics {

using Labels = std::vector<std::pair<std::string, std::string>>;  // name, value

struct Sample {
    Labels labels = {};
    double value = 0;                 // counter, gauge
    uint64_t count = 0;               // histogram: observations
    double sum = 0;                   // histogram: of the observed seconds
    std::vector<double> bounds = {};  // histogram: upper bounds, ascending, the last is infinity
    std::vector<uint64_t> cumulative = {};  // histogram: observations <= bounds[i]

    bool operator==(const Sample&) const = default;
};

struct Family {
    std::string name;
    std::string help;
    Type type = Type::kCounter;
    std::vector<Sample> samples = {};

    bool operator==(const Family&) const = default;
};

using Snapshot = std::vector<Family>;

// One snapshot of many processes. Samples with equal labels become one: counters and histograms are
// added; gauges by their row's Merge in names.h (most are added; ratios keep the largest). What
// another process sent and does not fit (another type, other bounds) is left out.
Snapshot merge(const std::vector<Snapshot>& snapshots);

// The Prometheus text format 0.0.4.
std::string to_text(const Snapshot& snapshot);

// The sum of a family's values (histograms: counts) over all samples that have these labels.
double total(const Snapshot& snapshot, std::string_view name, const Labels& with = {});

}  // namespace aerie::metrics
