// metrics' snapshots as messages of proto/control.proto and back. What came from a peer may hold
// anything: an unknown type becomes a counter.
#pragma once

#include "metrics/snapshot.h"

namespace aerie::proto {
class MetricFamily;
}  // namespace aerie::proto

namespace aerie::control {

void write_family(const metrics::Family& family, proto::MetricFamily& into);
metrics::Family read_family(const proto::MetricFamily& family);

}  // namespace aerie::control
