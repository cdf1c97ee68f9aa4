// Conversations: what previous_response_id refers to. In memory, and so lost with the process.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/json.h"

namespace aerie::responses {

struct ConversationLimits {
    size_t max_conversations = 4096;
    size_t max_bytes = 64 << 20;  // of all, as JSON
};

// Any thread. Where there is no room, those go that were used longest ago.
class Conversations {
  public:
    explicit Conversations(const ConversationLimits& limits) : limits_(limits) {}

    // messages: of the conversation up to and with this response, as chat templates know them.
    void put(const std::string& response_id, const Json& messages);
    std::optional<Json> find(const std::string& response_id);

  private:
    struct Entry {
        std::string id;
        std::string messages;  // JSON: smaller than the tree
    };
    const ConversationLimits limits_;
    std::mutex mutex_;
    std::list<Entry> entries_;  // the last used first
    std::unordered_map<std::string, std::list<Entry>::iterator> places_;
    size_t num_bytes_ = 0;
};

}  // namespace aerie::responses
