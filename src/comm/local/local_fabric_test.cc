#include "comm/fabric_contract.h"

namespace aerie::comm {
namespace {

Backend local_backend() {
    auto network = make_local_network();
    return {
        [network](int node, uint32_t epoch) { return make_local_fabric(network, node, epoch); }};
}

const auto kBackends = testing::Values(BackendParam{"local", local_backend});
const auto name_of_backend = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Local, FabricContract, kBackends, name_of_backend);
INSTANTIATE_TEST_SUITE_P(Local, OneSidedContract, kBackends, name_of_backend);

TEST(LocalFabric, LendsToOtherHostsInPlace) {
    auto backend = local_backend();
    auto a = backend.make_host(0, 1), b = backend.make_host(1, 1);
    Inbox inbox;
    b->open(0, &inbox);
    ASSERT_TRUE(a->set_peer(1, 1, b->address()).ok());
    const auto payload = pattern(1000, 1);
    ASSERT_TRUE(a->send({1, 0}, with_payload("lent", payload, nullptr, Payload::kLent)).ok());
    ASSERT_TRUE(inbox.wait(1));
    EXPECT_EQ(inbox.mail()[0].payload, payload.data());
    EXPECT_EQ(inbox.num_accepted, 0u);
}

}  // namespace
}  // namespace aerie::comm
