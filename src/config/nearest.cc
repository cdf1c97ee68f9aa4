#include "config/nearest.h"

#include <algorithm>
#include <cctype>

namespace aerie {
namespace {

std::string folded(std::string_view word) {
    std::string out;
    for (char c : word) {
        out.push_back(c == '-' ? '_'
                               : static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    }
    return out;
}

}  // namespace

int edit_distance(std::string_view first, std::string_view second) {
    const std::string a = folded(first), b = folded(second);
    const int rows = static_cast<int>(a.size()) + 1, columns = static_cast<int>(b.size()) + 1;
    std::vector<std::vector<int>> cost(rows, std::vector<int>(columns));
    for (int i = 0; i < rows; ++i) cost[i][0] = i;
    for (int j = 0; j < columns; ++j) cost[0][j] = j;
    for (int i = 1; i < rows; ++i) {
        for (int j = 1; j < columns; ++j) {
            cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1,
                                   cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
            }
        }
    }
    return cost[rows - 1][columns - 1];
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
    std::string best;
    // A third of the letters may be wrong; beyond that a guess misleads.
    int best_cost = std::max(2, static_cast<int>(word.size()) / 3) + 1;
    for (const std::string& candidate : known) {
        const int cost = edit_distance(word, candidate);
        if (cost < best_cost) {
            best_cost = cost;
            best = candidate;
        }
    }
    return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
    const std::string best = nearest(word, known);
    return best.empty() ? "" : "; did you mean " + best + "?";
}

}  // namespace aerie
