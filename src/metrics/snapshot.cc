#include "metrics/snapshot.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <map>

namespace aerie::metrics {

const Metric* find_metric(std::string_view name) {
    for (const Metric& row : kMetrics)
        if (row.name == name) return &row;
    return nullptr;
}

namespace {

// Adds `from` to a sample with equal labels; false where the two do not fit.
bool combine(Sample& into, const Sample& from, Type type, Merge how) {
    if (type == Type::kHistogram) {
        if (into.bounds != from.bounds || into.cumulative.size() != from.cumulative.size())
            return false;
        into.count += from.count;
        into.sum += from.sum;
        for (size_t i = 0; i < from.cumulative.size(); ++i)
            into.cumulative[i] += from.cumulative[i];
        return true;
    }
    if (type == Type::kCounter || how == Merge::kSum) {
        into.value += from.value;
    } else {
        into.value = how == Merge::kMax ? std::max(into.value, from.value)
                                        : std::min(into.value, from.value);
    }
    return true;
}

struct Merged {
    Family family;
    std::map<Labels, size_t> where;  // labels in the order of their names → index in samples
};

void merge_family(std::map<std::string, Merged>& merged, const Family& family) {
    auto [it, is_new] = merged.try_emplace(family.name);
    Family& into = it->second.family;
    if (is_new) into = Family{.name = family.name, .help = family.help, .type = family.type};
    if (into.type != family.type) return;
    const Metric* row = find_metric(family.name);
    for (const Sample& sample : family.samples) {
        if (sample.bounds.size() != sample.cumulative.size()) continue;
        Labels key = sample.labels;
        std::sort(key.begin(), key.end());
        const auto [at, first] = it->second.where.try_emplace(std::move(key), into.samples.size());
        if (first)
            into.samples.push_back(sample);
        else
            combine(into.samples[at->second], sample, into.type, row ? row->merge : Merge::kSum);
    }
}

}  // namespace

Snapshot merge(const std::vector<Snapshot>& snapshots) {
    std::map<std::string, Merged> merged;
    for (const Snapshot& snapshot : snapshots)
        for (const Family& family : snapshot) merge_family(merged, family);
    Snapshot result;
    for (auto& [name, one] : merged) {
        std::sort(one.family.samples.begin(), one.family.samples.end(),
                  [](const Sample& a, const Sample& b) { return a.labels < b.labels; });
        result.push_back(std::move(one.family));
    }
    return result;
}

std::string to_text(const Snapshot& snapshot) {
    std::vector<prometheus::MetricFamily> families;
    for (const Family& family : snapshot) {
        prometheus::MetricFamily out;
        out.name = family.name;
        out.help = family.help;
        out.type = family.type == Type::kCounter ? prometheus::MetricType::Counter
                   : family.type == Type::kGauge ? prometheus::MetricType::Gauge
                                                 : prometheus::MetricType::Histogram;
        for (const Sample& sample : family.samples) {
            prometheus::ClientMetric metric;
            for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
            metric.counter.value = sample.value;
            metric.gauge.value = sample.value;
            metric.histogram.sample_count = sample.count;
            metric.histogram.sample_sum = sample.sum;
            for (size_t i = 0; i < sample.bounds.size() && i < sample.cumulative.size(); ++i)
                metric.histogram.bucket.push_back({sample.cumulative[i], sample.bounds[i]});
            out.metric.push_back(std::move(metric));
        }
        families.push_back(std::move(out));
    }
    return prometheus::TextSerializer().Serialize(families);
}

double total(const Snapshot& snapshot, std::string_view name, const Labels& with) {
    double sum = 0;
    for (const Family& family : snapshot) {
        if (family.name != name) continue;
        for (const Sample& sample : family.samples) {
            const bool fits = std::all_of(with.begin(), with.end(), [&](const auto& label) {
                return std::find(sample.labels.begin(), sample.labels.end(), label) !=
                       sample.labels.end();
            });
            if (!fits) continue;
            sum +=
                family.type == Type::kHistogram ? static_cast<double>(sample.count) : sample.value;
        }
    }
    return sum;
}

}  // namespace aerie::metrics
