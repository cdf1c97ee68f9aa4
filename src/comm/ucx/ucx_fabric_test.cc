#include "comm/fabric_contract.h"

namespace aerie::comm {
namespace {

Backend backend(const char* transports) {
    return {[transports](int node, uint32_t epoch) {
        auto fabric = make_ucx_fabric({.node = node, .epoch = epoch, .transports = transports});
        EXPECT_TRUE(fabric.ok()) << fabric.message();
        return std::move(*fabric);
    }};
}
Backend shared_memory() { return backend(""); }
Backend tcp() { return backend("tcp"); }

const auto kBackends =
    testing::Values(BackendParam{"shared_memory", shared_memory}, BackendParam{"tcp", tcp});
const auto name_of_backend = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Ucx, FabricContract, kBackends, name_of_backend);
INSTANTIATE_TEST_SUITE_P(Ucx, OneSidedContract, kBackends, name_of_backend);

}  // namespace
}  // namespace aerie::comm
