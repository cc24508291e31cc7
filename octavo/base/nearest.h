// The names most like a misspelt one, for the hints of error texts: unknown verb, key, format, recipe, path.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// Levenshtein distance with transpositions of neighbours counted as one edit.
int EditDistance(std::string_view a, std::string_view b);

// The at most `most` known names nearest to `name`, nearest first, ties in the order given. Names that share a prefix
// with it count as nearer than the bare distance says.
std::vector<std::string> NearestNames(std::string_view name, std::span<const std::string_view> known, int most);

}  // namespace octavo
