#include "control/metric_messages.h"

#include "proto/control.pb.h"

namespace aerie::control {
namespace {

template <typename Repeated, typename T>
void fill(Repeated& into, const std::vector<T>& from) {
    into.Assign(from.begin(), from.end());
}

}  // namespace

void write_family(const metrics::Family& family, proto::MetricFamily& into) {
    into.set_name(family.name);
    into.set_help(family.help);
    into.set_type(static_cast<proto::MetricFamily::Type>(family.type));
    for (const metrics::Sample& sample : family.samples) {
        proto::MetricSample& to = *into.add_samples();
        for (const auto& [name, value] : sample.labels) {
            proto::MetricSample::Label& label = *to.add_labels();
            label.set_name(name);
            label.set_value(value);
        }
        to.set_value(sample.value);
        to.set_count(sample.count);
        to.set_sum(sample.sum);
        fill(*to.mutable_bounds(), sample.bounds);
        fill(*to.mutable_cumulative(), sample.cumulative);
    }
}

metrics::Family read_family(const proto::MetricFamily& family) {
    metrics::Family made{.name = family.name(), .help = family.help()};
    if (family.type() == proto::MetricFamily::GAUGE) made.type = metrics::Type::kGauge;
    if (family.type() == proto::MetricFamily::HISTOGRAM) made.type = metrics::Type::kHistogram;
    for (const proto::MetricSample& sample : family.samples()) {
        metrics::Sample& to = made.samples.emplace_back();
        for (const auto& label : sample.labels()) to.labels.emplace_back(label.name(), label.value());
        to.value = sample.value();
        to.count = sample.count();
        to.sum = sample.sum();
        to.bounds = {sample.bounds().begin(), sample.bounds().end()};
        to.cumulative = {sample.cumulative().begin(), sample.cumulative().end()};
    }
    return made;
}

}  // namespace aerie::control
