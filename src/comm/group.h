// Group: the ranks of one attention replica, which are threads of one process. They show each other
// their buffers; who reduces reads the others' in rank order, so that sums have one order.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace aerie::comm {

class Group {
  public:
    virtual ~Group() = default;
    virtual int size() const = 0;

    // Shows `mine` to all and waits until all have called. Returns everybody's pointer, by rank;
    // they and what they point to may be read until this rank calls done(). The error names who is
    // missing and how long it was waited for; after it the group is broken and every call fails.
    virtual Result<std::span<const void* const>> share(int rank, const void* mine) = 0;
    // Has read; returns when all have. After that the owners may write again.
    virtual Status done(int rank) = 0;
    // share() of nothing.
    virtual Status barrier(int rank) = 0;
    // Makes every present and later call fail at once (a rank of the group cannot go on).
    virtual void abort(const std::string& why) = 0;
    // Makes a broken group whole. Only while no rank is in a call.
    virtual void reset() = 0;
};

// limit_s: the longest wait for another rank, in seconds. Waiting blocks after a short spin.
std::unique_ptr<Group> make_local_group(int size, double limit_s);

}  // namespace aerie::comm
