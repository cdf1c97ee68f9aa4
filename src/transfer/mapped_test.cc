// Between processes of one machine KV is copied by who pushes or pulls it, not sent in messages: both
// sides over UCX, with pools in the fabric's memory.
#include <cstring>

#include "comm/scoped_region.h"
#include "transfer/testing/two_sides.h"

namespace aerie::transfer {
namespace {

class Mapped : public TwoSides {
  protected:
    void SetUp() override {
        ++epoch_;
        p_ = make_host(0);
        d_ = make_host(1);
        ASSERT_TRUE(d_->set_peer(0, epoch_, p_->address()).ok());
        ASSERT_TRUE(eventually([&] { return p_->peer_epoch(1) == epoch_; }));
        prefill_memory_ = memory(1, 1);
        decode_memory_ = memory(1, 101);
        const Pool prefill = place(*p_, prefill_memory_.front());
        pool_ = place(*d_, decode_memory_.front());
        make_prefill(30, {prefill});
        make_decode({pool_});
    }
    void TearDown() override {
        prefill_.reset();
        decode_.reset();
        regions_.clear();
        TwoSides::TearDown();
    }
    void expect_all() {
        std::memcpy(decode_memory_.front().data(), pool_.base, pool_.num_bytes());
        expect_arrived(0);
    }

  private:
    std::unique_ptr<HeldFabric> make_host(int node) const {
        auto fabric = comm::make_ucx_fabric({.node = node, .epoch = epoch_});
        CHECK(fabric.ok(), "{}", fabric.message());
        return std::make_unique<HeldFabric>(*std::move(fabric));
    }
    Pool place(comm::Fabric& fabric, const std::vector<std::byte>& bytes) {
        auto region = fabric.allocate_memory(bytes.size());
        CHECK(region.ok(), "{}", region.message());
        regions_.emplace_back(fabric, *std::move(region));
        std::memcpy(regions_.back().base(), bytes.data(), bytes.size());
        return {regions_.back().base(), kLayers, kBlocks, kPage, kTokenBytes, regions_.back().key()};
    }

    Pool pool_;
    std::vector<comm::ScopedRegion> regions_;
};

TEST_F(Mapped, APushIsCopiedByThePrefillSide) {
    push_until_ready();
    EXPECT_EQ(p_->num_mapped(), static_cast<size_t>(kLayers));
    EXPECT_EQ(p_->num_by_messages(), 0u);
    expect_all();
}

TEST_F(Mapped, APullIsCopiedByTheDecodeSide) {
    offer(pull_until_published());
    next_d(D::kReady);
    EXPECT_EQ(d_->num_mapped(), static_cast<size_t>(kLayers));
    EXPECT_EQ(d_->num_by_messages(), 0u);
    expect_all();
}

}  // namespace
}  // namespace aerie::transfer
