// What /proc/self says about this process, as the families process_*.
#pragma once

#include "metrics/snapshot.h"

namespace aerie::metrics {

// Appends nothing for what cannot be read.
void append_process_metrics(Snapshot& snapshot);

}  // namespace aerie::metrics
