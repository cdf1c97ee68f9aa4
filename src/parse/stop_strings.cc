#include "parse/stop_strings.h"

#include <algorithm>
#include <utility>

namespace aerie {

StopStrings::StopStrings(std::vector<std::string> stops, bool keep_match)
    : stops_(std::move(stops)), keep_match_(keep_match) {}

size_t StopStrings::num_to_hold(std::string_view text) const {
    size_t longest = 0;
    for (const std::string& stop : stops_) {
        for (size_t size = std::min(stop.size() - 1, text.size()); size > longest; --size) {
            if (text.ends_with(std::string_view(stop).substr(0, size))) longest = size;
        }
    }
    return longest;
}

StopStrings::Result StopStrings::push(std::string_view text) {
    if (stops_.empty()) return {std::string(text), std::nullopt};
    std::string all = std::exchange(held_back_, {});
    all.append(text);

    const std::string* first = nullptr;
    size_t first_end = std::string::npos;
    for (const std::string& stop : stops_) {
        const size_t begin = all.find(stop);
        if (begin == std::string::npos) continue;
        const size_t end = begin + stop.size();
        if (end < first_end || (end == first_end && stop.size() > first->size())) {
            first = &stop;
            first_end = end;
        }
    }
    if (first) {
        all.resize(keep_match_ ? first_end : first_end - first->size());
        return {std::move(all), *first};
    }
    const size_t hold = num_to_hold(all);
    held_back_ = all.substr(all.size() - hold);
    all.resize(all.size() - hold);
    return {std::move(all), std::nullopt};
}

std::string StopStrings::pass(std::string_view text) {
    return finish().append(text);
}

std::string StopStrings::finish() { return std::exchange(held_back_, {}); }

}  // namespace aerie
