// From the names that a user gave to the data files behind them, in a fixed order.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::data {

// Files and shell patterns (*, ?, [..]) become files, sorted inside each pattern, without repetition. `prefix`, a
// folder, goes before relative names. `key` is the setting that named them, for errors: nothing that matches, a folder.
std::vector<std::filesystem::path> ExpandFiles(const std::vector<std::string>& names, const std::string& prefix,
                                               std::string_view key);

}  // namespace octavo::data
