#include "control/metric_messages.h"

#include <gtest/gtest.h>

#include "proto/control.pb.h"

namespace aerie::control {
namespace {

TEST(MetricMessages, AFamilyKeepsEveryField) {
    const metrics::Family family{.name = "a",
                                 .help = "b",
                                 .type = metrics::Type::kHistogram,
                                 .samples = {{.labels = {{"phase", "decode"}, {"dp_rank", "1"}},
                                              .value = 1.5,
                                              .count = 3,
                                              .sum = 0.75,
                                              .bounds = {0.1, 1},
                                              .cumulative = {1, 3}}}};
    proto::MetricFamily message;
    write_family(family, message);
    EXPECT_EQ(read_family(message), family);
}

}  // namespace
}  // namespace aerie::control
