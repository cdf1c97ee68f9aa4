// Mutator: inputs that are nearly those of a corpus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace aerie::fuzz {

// libFuzzer's form: a line each, [name=]"text" with \xNN, \\ and \"; # begins a comment. An empty
// path: none.
std::vector<std::string> read_dictionary(const std::string& path);

// The same inputs in the same order for the same arguments, on every machine.
class Mutator {
  public:
    Mutator(std::vector<std::string> corpus, std::vector<std::string> dictionary, size_t max_len,
            uint64_t seed);

    std::string next();

  private:
    size_t below(size_t bound);  // 0 … bound - 1; bound > 0
    const std::string& any(const std::vector<std::string>& list) {
        return list[below(list.size())];
    }
    void mutate(std::string& text);
    void change_byte(std::string& text);
    void remove(std::string& text);
    void repeat(std::string& text);
    void insert_token(std::string& text);
    void change_number(std::string& text);
    void splice(std::string& text);

    std::vector<std::string> corpus_;  // not empty
    const std::vector<std::string> dictionary_;
    const size_t max_len_;
    std::mt19937_64 random_;
};

}  // namespace aerie::fuzz
