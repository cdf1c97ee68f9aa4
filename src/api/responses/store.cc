#include "api/responses/store.h"

#include <utility>

namespace aerie::responses {

void Conversations::put(const std::string& response_id, const Json& messages) {
    std::string text = messages.dump();
    if (text.size() > limits_.max_bytes) return;  // it would drive out all others and itself
    std::lock_guard lock(mutex_);
    num_bytes_ += text.size();
    entries_.push_front({response_id, std::move(text)});
    places_[response_id] = entries_.begin();
    while (entries_.size() > limits_.max_conversations || num_bytes_ > limits_.max_bytes) {
        num_bytes_ -= entries_.back().messages.size();
        places_.erase(entries_.back().id);
        entries_.pop_back();
    }
}

std::optional<Json> Conversations::find(const std::string& response_id) {
    std::string text;
    {
        std::lock_guard lock(mutex_);
        const auto found = places_.find(response_id);
        if (found == places_.end()) return std::nullopt;
        entries_.splice(entries_.begin(), entries_, found->second);
        text = found->second->messages;
    }
    auto messages = Json::parse(text);
    return messages ? std::optional(*std::move(messages)) : std::nullopt;
}

}  // namespace aerie::responses
