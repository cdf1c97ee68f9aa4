#include "frontend/scrape.h"

#include <algorithm>
#include <cstdlib>

namespace aerie::frontend {
namespace {

// Reads `name="value",…}` from behind the opening brace; false where it is something else.
bool read_labels(std::string_view& text, Scrape::Labels& labels) {
    while (!text.empty() && text[0] != '}') {
        const size_t equals = text.find("=\"");
        if (equals == std::string_view::npos) return false;
        const std::string name(text.substr(0, equals));
        text.remove_prefix(equals + 2);
        std::string value;
        while (!text.empty() && text[0] != '"') {
            if (text[0] == '\\' && text.size() > 1) {
                text.remove_prefix(1);
                value += text[0] == 'n' ? '\n' : text[0];
            } else {
                value += text[0];
            }
            text.remove_prefix(1);
        }
        if (text.empty()) return false;
        text.remove_prefix(1);
        if (!text.empty() && text[0] == ',') text.remove_prefix(1);
        labels[name] = std::move(value);
    }
    if (text.empty()) return false;
    text.remove_prefix(1);
    return true;
}

}  // namespace

Scrape::Scrape(std::string_view text) {
    constexpr std::string_view kType = "# TYPE ";
    while (!text.empty()) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        if (line.starts_with(kType)) {
            line.remove_prefix(kType.size());
            families_[std::string(line.substr(0, line.find(' ')))] = true;
            continue;
        }
        if (line.empty() || line[0] == '#') continue;
        const size_t end = line.find_first_of("{ ");
        if (end == std::string_view::npos) continue;
        const std::string name(line.substr(0, end));
        const bool has_labels = line[end] == '{';
        line.remove_prefix(end + 1);
        Sample sample{};
        if (has_labels && !read_labels(line, sample.labels)) continue;
        sample.value = std::strtod(std::string(line).c_str(), nullptr);
        samples_[name].push_back(std::move(sample));
    }
}

std::optional<double> Scrape::value(std::string_view name, const Labels& with) const {
    const auto found = samples_.find(name);
    if (found == samples_.end()) return std::nullopt;
    for (const Sample& sample : found->second) {
        const bool has_all = std::all_of(with.begin(), with.end(), [&](const auto& label) {
            const auto at = sample.labels.find(label.first);
            return at != sample.labels.end() && at->second == label.second;
        });
        if (has_all) return sample.value;
    }
    return std::nullopt;
}

std::vector<Scrape::Labels> Scrape::series(std::string_view name) const {
    std::vector<Labels> all;
    const auto found = samples_.find(name);
    if (found == samples_.end()) return all;
    for (const Sample& sample : found->second) all.push_back(sample.labels);
    return all;
}

bool Scrape::has_family(std::string_view name) const { return families_.contains(name); }

}  // namespace aerie::frontend
