// TokenLog: a sink that tests wait on.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "request/request.h"

namespace aerie::control {

class TokenLog {
  public:
    struct Entry {
        std::vector<int32_t> tokens;
        int num_ends = 0;
        FinishReason finish = FinishReason::kNone;
        std::string error;
    };

    void take(const std::vector<TokenOut>& tokens) {
        std::lock_guard lock(mutex_);
        for (const TokenOut& token : tokens) {
            Entry& entry = entries_[token.id];
            entry.tokens.insert(entry.tokens.end(), token.tokens.begin(), token.tokens.end());
            if (token.finish == FinishReason::kNone) continue;
            ++entry.num_ends;
            entry.finish = token.finish;
            entry.error = token.error;
        }
        changed_.notify_all();
    }

    // What has come for a request once `done(entry)` holds, or after 20 s.
    template <typename Done>
    Entry wait(RequestId id, Done done) {
        std::unique_lock lock(mutex_);
        changed_.wait_until(lock, after(20), [&] { return done(entries_[id]); });
        return entries_[id];
    }
    Entry wait_end(RequestId id) {
        return wait(id, [](const Entry& entry) { return entry.num_ends > 0; });
    }
    Entry wait_tokens(RequestId id, size_t count) {
        return wait(id, [&](const Entry& entry) { return entry.tokens.size() >= count; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<RequestId, Entry> entries_;
};

}  // namespace aerie::control
