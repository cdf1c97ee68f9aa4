// The fault of an expert that is left out, for the tests that must see it.
#pragma once

#include "base/fault.h"

namespace aerie::expert {

// expert: the model's number.
inline bool is_dropped(int layer, int expert) {
    return fault_planted(Fault::kExpertDropped) && layer == 2 && expert % 4 == 1;
}

}  // namespace aerie::expert
