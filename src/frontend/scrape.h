// Scrape: values looked up in a Prometheus text.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aerie::frontend {

class Scrape {
  public:
    using Labels = std::map<std::string, std::string, std::less<>>;

    explicit Scrape(std::string_view text);

    // Of the series of that name and at least these labels: the first one's value.
    std::optional<double> value(std::string_view name, const Labels& with) const;
    std::vector<Labels> series(std::string_view name) const;
    bool has_family(std::string_view name) const;  // "# TYPE name …"

  private:
    struct Sample {
        Labels labels;
        double value;
    };
    std::map<std::string, std::vector<Sample>, std::less<>> samples_;  // by name
    std::map<std::string, bool, std::less<>> families_;
};

}  // namespace aerie::frontend
