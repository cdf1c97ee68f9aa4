#include <cstdlib>
#include <cstring>

#include "base/check.h"
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

// Memory that cannot be shared goes by messages: its key offers no mapping.
TEST(UcxFabric, MemoryThatIsNotSharedIsNotOfferedToBeMapped) {
    const auto key_bytes = [] {
        auto fabric = make_ucx_fabric({.node = 0, .epoch = 1});
        CHECK(fabric.ok(), "{}", fabric.message());
        auto own = (*fabric)->allocate_memory(1 << 16);
        CHECK(own.ok(), "{}", own.message());
        std::memset(own->base, 1, 1 << 16);
        std::byte byte{};
        const size_t plain = (*fabric)->register_memory(&byte, 1)->key.size();
        (*fabric)->revoke(own->id);
        return std::pair(own->key.size(), plain);
    };
    const auto [shared, plain] = key_bytes();
    EXPECT_GT(shared, plain);
    setenv("UCX_ALLOC_PRIO", "mmap,heap", 1);
    const auto [fallen_back, same] = key_bytes();
    unsetenv("UCX_ALLOC_PRIO");
    EXPECT_EQ(fallen_back, same);
}

}  // namespace
}  // namespace aerie::comm
