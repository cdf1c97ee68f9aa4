// Where each value of a Config came from, for messages.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "config/keys.h"

namespace aerie {

class Sources {
  public:
    std::string settings_file = "settings.json";  // as the user gave it
    std::string toml_file = "config.toml";
    bool has_settings = false, has_toml = false;

    void set(const ConfigKey& key, std::string place) { places_[&key] = std::move(place); }
    // A value was given that could not be used; checks that need it are left out.
    void set_bad(const ConfigKey& key) { bad_.insert(&key); }
    bool bad(std::string_view section, std::string_view name) const {
        return bad_.contains(find_key(section, name));
    }
    bool any_bad(std::string_view section) const;
    bool given(std::string_view section, std::string_view name) const;
    // "settings.json line 3: tp_size = 8", "--tp-size 8", "config.toml: [parallel] attention_tp = 1
    // (default)"
    std::string describe(const Config& config, std::string_view section,
                         std::string_view name) const;
    const std::string& file_of(const ConfigKey& key) const {
        return key.in_settings() ? settings_file : toml_file;
    }

  private:
    std::map<const ConfigKey*, std::string> places_;  // "settings.json line 3", "--tp-size"
    std::set<const ConfigKey*> bad_;
};

}  // namespace aerie
