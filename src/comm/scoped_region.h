// ScopedRegion: a region of a fabric's, revoked with its owner. Memory that the fabric allocated is
// free then; registered memory is left alone. Move-only; the fabric outlives it.
#pragma once

#include <utility>

#include "comm/fabric.h"

namespace aerie::comm {

class ScopedRegion {
  public:
    ScopedRegion(Fabric& fabric, OwnRegion region) : fabric_(&fabric), region_(std::move(region)) {}
    ~ScopedRegion() {
        if (fabric_ != nullptr) fabric_->revoke(region_.id);
    }
    ScopedRegion(ScopedRegion&& other) noexcept
        : fabric_(std::exchange(other.fabric_, nullptr)), region_(std::move(other.region_)) {}
    ScopedRegion& operator=(ScopedRegion&&) = delete;

    std::byte* base() const { return region_.base; }
    const std::string& key() const { return region_.key; }

  private:
    Fabric* fabric_;
    OwnRegion region_;
};

}  // namespace aerie::comm
