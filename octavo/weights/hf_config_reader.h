// Typed access to the keys of a config.json that remembers which were read. Only hf_config*.cc uses it.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::weights {

class HfConfigReader {
 public:
  HfConfigReader(const nlohmann::json& json, std::string where) : json_(json), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  // Reads the first of several spellings that is there; null counts as missing. Another type is a file error.
  std::optional<int64_t> FindInt(std::initializer_list<const char*> keys);
  std::optional<double> FindNumber(std::initializer_list<const char*> keys);
  std::optional<bool> FindBool(const char* key);
  std::optional<std::string> FindText(std::initializer_list<const char*> keys);
  const nlohmann::json* Find(const char* key);  // marks it as read; null counts as missing

  // A size of at least 1 that must be there.
  int64_t Size(std::initializer_list<const char*> keys);
  int64_t SizeOr(std::initializer_list<const char*> keys, int64_t otherwise);

  // The key, if it is there, must be this.
  void Expect(const char* key, const nlohmann::json& only);
  void Ignore(std::initializer_list<const char*> keys);  // no meaning for the numbers of a forward pass
  // Keys that nobody read.
  std::vector<std::string> Unread() const;
  [[noreturn]] void Fail(const std::string& problem) const;

 private:
  const nlohmann::json* First(std::initializer_list<const char*> keys, const char** found);

  const nlohmann::json& json_;
  std::string where_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace octavo::weights
