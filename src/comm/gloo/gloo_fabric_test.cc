#include "comm/fabric_contract.h"

namespace aerie::comm {
namespace {

Backend gloo() {
    return {[](int node, uint32_t epoch) {
        auto fabric = make_gloo_fabric({.node = node, .epoch = epoch});
        EXPECT_TRUE(fabric.ok()) << fabric.message();
        return std::move(*fabric);
    }};
}

// As a host with comm_backend = gloo has it: the contract's own ports are the exchange's.
Backend split() {
    return {[](int node, uint32_t epoch) {
        const auto half = [&] { return gloo().make_host(node, epoch); };
        return make_split_fabric(half(), half());
    }};
}

const auto kBackends = testing::Values(BackendParam{"gloo", gloo}, BackendParam{"split", split});
const auto name_of_backend = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Gloo, FabricContract, kBackends, name_of_backend);
INSTANTIATE_TEST_SUITE_P(Gloo, OneSidedContract, kBackends, name_of_backend);

}  // namespace
}  // namespace aerie::comm
