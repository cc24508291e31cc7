#include "octavo/data/json_line.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "octavo/base/error.h"

namespace octavo::data {
namespace {

constexpr int kMostDepth = 64;

// Keeps the values of the columns at the outermost level; nothing else is stored.
class LineReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  LineReader(std::span<const std::string> columns, FunctionRef<std::string()> where)
      : columns_(columns), where_(where), values_(columns.size()) {}

  bool null() override { return Other("null"); }
  bool boolean(bool) override { return Other("true or false"); }
  bool number_integer(number_integer_t) override { return Other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return Other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return Other("a number"); }
  bool binary(binary_t&) override { return Other("bytes"); }
  bool string(string_t& value) override {
    NeedObject();
    if (depth_ == 1 && wanted_) {
      if (values_[*wanted_]) ThrowFile("{}: field '{}' stands here twice", where_(), columns_[*wanted_]);
      values_[*wanted_] = std::move(value);
    }
    return true;
  }
  bool start_object(std::size_t) override { return Enter(true); }
  bool key(string_t& name) override {
    if (depth_ == 1) {
      const auto at = std::find(columns_.begin(), columns_.end(), name);
      wanted_ = at == columns_.end() ? std::nullopt : std::optional<size_t>(at - columns_.begin());
      if (fields_.size() < 8) fields_.push_back(name.substr(0, 32));
    }
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override { return Enter(false); }
  bool end_array() override { return --depth_, true; }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    const bool encoding = std::string_view(error.what()).find("UTF-8") != std::string_view::npos;
    throw Error(ErrorCode::kFile,
                fmt::format("{}: {} at column {}", where_(), encoding ? "invalid UTF-8" : "bad JSON", position),
                "expected one object per line: {\"text\": \"…\"}");
  }

  std::string Take() {
    for (std::optional<std::string>& value : values_) {
      if (value) return std::move(*value);
    }
    throw Error(ErrorCode::kFile, fmt::format("{}: no field '{}'", where_(), fmt::join(columns_, "' or '")),
                fmt::format("found {}; name yours with train_data_columns=NAME",
                            fields_.empty() ? "an empty object" : fmt::format("'{}'", fmt::join(fields_, "', '"))));
  }

 private:
  void NeedObject() const {
    if (depth_ > 0) return;
    throw Error(ErrorCode::kFile, fmt::format("{}: not a JSON object", where_()),
                "expected one object per line: {\"text\": \"…\"}");
  }
  bool Other(std::string_view what) {
    NeedObject();
    if (depth_ == 1 && wanted_) {
      ThrowFile("{}: field '{}' is {}, expected text", where_(), columns_[*wanted_], what);
    }
    return true;
  }
  bool Enter(bool object) {
    if (depth_ == 0 && !object) NeedObject();
    if (depth_ == 1 && wanted_) Other(object ? "an object" : "a list");
    if (++depth_ > kMostDepth) ThrowFile("{}: nested deeper than {} levels", where_(), kMostDepth);
    return true;
  }

  std::span<const std::string> columns_;
  FunctionRef<std::string()> where_;
  std::vector<std::optional<std::string>> values_;
  std::vector<std::string> fields_;
  std::optional<size_t> wanted_;
  int depth_ = 0;
};

}  // namespace

std::string TextOfJsonLine(std::string_view line, std::span<const std::string> columns,
                           FunctionRef<std::string()> where) {
  LineReader reader(columns, where);
  nlohmann::json::sax_parse(line.begin(), line.end(), &reader);
  return reader.Take();
}

}  // namespace octavo::data
