// EarlyNews<T>: what has come about requests that are not known here yet, because messages overtake
// each other, or not any more. At most `limit` are kept: who puts one more gets the oldest back, and
// ends what it stood for. Leader thread. Every call costs O(1).
#pragma once

#include <cstddef>
#include <iterator>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

#include "request/request.h"

namespace aerie::engine {

template <typename T>
class EarlyNews {
  public:
    explicit EarlyNews(size_t limit) : limit_(limit) {}

    // Takes the place of what was there of the same request.
    std::optional<std::pair<RequestId, T>> put(RequestId id, T news) {
        erase(id);
        news_.emplace_back(id, std::move(news));
        places_[id] = std::prev(news_.end());
        if (news_.size() <= limit_) return std::nullopt;
        auto oldest = std::move(news_.front());
        erase(oldest.first);
        return oldest;
    }
    std::optional<T> take(RequestId id) {
        const auto found = places_.find(id);
        if (found == places_.end()) return std::nullopt;
        T news = std::move(found->second->second);
        erase(id);
        return news;
    }
    bool contains(RequestId id) const { return places_.contains(id); }
    size_t size() const { return news_.size(); }
    void erase(RequestId id) {
        const auto found = places_.find(id);
        if (found == places_.end()) return;
        news_.erase(found->second);
        places_.erase(found);
    }
    template <typename Predicate>
    void erase_if(Predicate predicate) {
        for (auto it = news_.begin(); it != news_.end();) {
            const RequestId id = it->first;
            const bool goes = predicate(it->second);
            ++it;
            if (goes) erase(id);
        }
    }

  private:
    const size_t limit_;
    std::list<std::pair<RequestId, T>> news_;  // the oldest first
    std::unordered_map<RequestId, typename std::list<std::pair<RequestId, T>>::iterator> places_;
};

}  // namespace aerie::engine
