#include "octavo/base/nearest.h"

#include <algorithm>
#include <utility>

namespace octavo {

int EditDistance(std::string_view a, std::string_view b) {
  const size_t columns = b.size() + 1;
  std::vector<int> before(columns), above(columns), row(columns);
  for (size_t j = 0; j < columns; ++j) above[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j < columns; ++j) {
      const int change = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above.back();
}

std::vector<std::string> NearestNames(std::string_view name, std::span<const std::string_view> known, int most) {
  std::vector<std::pair<int, std::string_view>> ranked;
  for (std::string_view candidate : known) {
    const size_t shared =
        std::mismatch(name.begin(), name.end(), candidate.begin(), candidate.end()).first - name.begin();
    ranked.emplace_back(2 * EditDistance(name, candidate) - static_cast<int>(std::min<size_t>(shared, 4)), candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
  std::vector<std::string> result;
  for (const auto& [distance, candidate] : ranked) {
    if (static_cast<int>(result.size()) == most) break;
    result.emplace_back(candidate);
  }
  return result;
}

}  // namespace octavo
