#include "metrics/registry.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>

#include "base/check.h"
#include "metrics/process.h"

namespace aerie::metrics {

void Counter::add(double amount) const {
    if (counter_) counter_->Increment(amount);
}
double Counter::value() const { return counter_ ? counter_->Value() : 0; }

void Gauge::set(double value) const {
    if (gauge_) gauge_->Set(value);
}
void Gauge::add(double amount) const {
    if (gauge_) gauge_->Increment(amount);
}
double Gauge::value() const { return gauge_ ? gauge_->Value() : 0; }

void Histogram::observe(double seconds) const {
    if (histogram_) histogram_->Observe(seconds);
}

struct Registry::Families {
    prometheus::Registry registry;  // gives the same family for the same name

    prometheus::Labels check(const Metric& metric, Type type, const Labels& labels) const;
};

prometheus::Labels Registry::Families::check(const Metric& metric, Type type,
                                             const Labels& labels) const {
    CHECK(metric.type == type, "{} is asked for as another type", metric.name);
    std::string names;
    prometheus::Labels result;
    for (const auto& [name, value] : labels) {
        if (!names.empty()) names += ',';
        names += name;
        result.emplace(name, value);
    }
    CHECK(names == metric.labels, "{} has the labels {}, not {}", metric.name, metric.labels,
          names);
    return result;
}

Registry::Registry() : families_(std::make_unique<Families>()) {}
Registry::~Registry() = default;

Counter Registry::counter(const Metric& metric, const Labels& labels) {
    auto& family = prometheus::BuildCounter()
                       .Name(std::string(metric.name))
                       .Help(std::string(metric.help))
                       .Register(families_->registry);
    return Counter(&family.Add(families_->check(metric, Type::kCounter, labels)));
}

Gauge Registry::gauge(const Metric& metric, const Labels& labels) {
    auto& family = prometheus::BuildGauge()
                       .Name(std::string(metric.name))
                       .Help(std::string(metric.help))
                       .Register(families_->registry);
    return Gauge(&family.Add(families_->check(metric, Type::kGauge, labels)));
}

Histogram Registry::histogram(const Metric& metric, const Labels& labels) {
    auto& family = prometheus::BuildHistogram()
                       .Name(std::string(metric.name))
                       .Help(std::string(metric.help))
                       .Register(families_->registry);
    const prometheus::Histogram::BucketBoundaries bounds(metric.buckets.begin(),
                                                         metric.buckets.end());
    return Histogram(&family.Add(families_->check(metric, Type::kHistogram, labels), bounds));
}

namespace {

// In the order of the table, which is the order a person reads; other labels go last.
Labels ordered_labels(const std::vector<prometheus::ClientMetric::Label>& labels,
                      std::string_view order) {
    Labels result;
    result.reserve(labels.size());
    for (const auto& label : labels) result.emplace_back(label.name, label.value);
    const std::string names = fmt::format(",{},", order);
    const auto place = [&](const std::string& name) { return names.find("," + name + ","); };
    std::sort(result.begin(), result.end(),
              [&](const auto& a, const auto& b) { return place(a.first) < place(b.first); });
    return result;
}

Sample to_sample(const prometheus::ClientMetric& metric, Type type, std::string_view order) {
    Sample sample{.labels = ordered_labels(metric.label, order)};
    if (type == Type::kCounter) sample.value = metric.counter.value;
    if (type == Type::kGauge) sample.value = metric.gauge.value;
    if (type == Type::kHistogram) {
        sample.count = metric.histogram.sample_count;
        sample.sum = metric.histogram.sample_sum;
        for (const auto& bucket : metric.histogram.bucket) {
            sample.bounds.push_back(bucket.upper_bound);
            sample.cumulative.push_back(bucket.cumulative_count);
        }
    }
    return sample;
}

}  // namespace

Snapshot Registry::collect() const {
    Snapshot snapshot;
    for (const auto& family : families_->registry.Collect()) {
        const Metric* row = find_metric(family.name);
        CHECK(row, "{} is not in the table", family.name);
        Family out{.name = family.name, .help = family.help, .type = row->type};
        for (const auto& metric : family.metric)
            out.samples.push_back(to_sample(metric, row->type, row->labels));
        std::sort(out.samples.begin(), out.samples.end(),
                  [](const Sample& a, const Sample& b) { return a.labels < b.labels; });
        snapshot.push_back(std::move(out));
    }
    append_process_metrics(snapshot);
    std::sort(snapshot.begin(), snapshot.end(),
              [](const Family& a, const Family& b) { return a.name < b.name; });
    return snapshot;
}

}  // namespace aerie::metrics
