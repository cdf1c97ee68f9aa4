// Registry: the metrics of one process. Handles are small values that stay valid as long as their
// registry; a default-made handle counts nothing. Counters and gauges are one atomic operation,
// histograms a short lock: fit for the layer path. Any thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "metrics/names.h"
#include "metrics/snapshot.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace aerie::metrics {

class Counter {
  public:
    Counter() = default;
    explicit Counter(prometheus::Counter* counter) : counter_(counter) {}
    void add(double amount = 1) const;  // amount >= 0
    double value() const;

  private:
    prometheus::Counter* counter_ = nullptr;
};

class Gauge {
  public:
    Gauge() = default;
    explicit Gauge(prometheus::Gauge* gauge) : gauge_(gauge) {}
    void set(double value) const;
    void add(double amount) const;  // may be negative
    double value() const;

  private:
    prometheus::Gauge* gauge_ = nullptr;
};

class Histogram {
  public:
    Histogram() = default;
    explicit Histogram(prometheus::Histogram* histogram) : histogram_(histogram) {}
    void observe(double seconds) const;

  private:
    prometheus::Histogram* histogram_ = nullptr;
};

class Registry {
  public:
    Registry();
    ~Registry();
    Registry(const Registry&) = delete;
    Registry& operator=(const Registry&) = delete;

    // The series of these labels, made at 0 where it does not exist. The labels' names must be the
    // row's, in its order (CHECK). May lock and allocate: once at start, not in the layer path.
    Counter counter(const Metric& metric, const Labels& labels = {});
    Gauge gauge(const Metric& metric, const Labels& labels = {});
    Histogram histogram(const Metric& metric, const Labels& labels = {});

    // All series, families and samples in the order of their names. Includes process_*, read from
    // /proc at that moment.
    Snapshot collect() const;

  private:
    struct Families;
    std::unique_ptr<Families> families_;
};

}  // namespace aerie::metrics
