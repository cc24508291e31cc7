#include "octavo/train/run_record.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"

namespace octavo::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

double NumberOf(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_string() && value == "Infinity") return std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

double FieldOf(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found == line.end() ? std::numeric_limits<double>::quiet_NaN() : NumberOf(*found);
}

// Calls use(line) for every whole JSON object of the file; a last line that is still being written is left out.
template <typename Use>
void ForEachLine(const fs::path& path, Use&& use) {
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (line.is_object()) use(line);
  }
}

HealthPoint HealthOf(const Json& line) {
  HealthPoint point;
  point.step = line.value("step", int64_t{0});
  point.site = line.value("site", "");
  point.operand = line.value("operand", "");
  point.saturated = FieldOf(line, "saturated");
  point.flushed = FieldOf(line, "flushed");
  point.sqnr_db = FieldOf(line, "sqnr_db");
  point.amax = FieldOf(line, "amax");
  point.scale_min = FieldOf(line, "scale_min");
  point.scale_max = FieldOf(line, "scale_max");
  point.nonfinite = line.value("nonfinite", int64_t{0});
  return point;
}

// Lines of an effective config that say where they come from: those are not defaults.
std::string GivenLines(const fs::path& path) {
  std::string given;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.find("  # ") != std::string::npos && !line.starts_with('#')) given += line + "\n";
  }
  return given;
}

}  // namespace

RunRecord ReadRun(const fs::path& run) {
  if (!fs::exists(run / "metrics.jsonl")) {
    throw Error(ErrorCode::kUsage, fmt::format("{} is not a run: it has no metrics.jsonl", run.string()),
                "give the folder that octavo train printed");
  }
  RunRecord record;
  record.name = fs::absolute(run).lexically_normal().filename().string();
  if (record.name.empty()) record.name = fs::absolute(run).lexically_normal().parent_path().filename().string();
  ForEachLine(run / "metrics.jsonl", [&](const Json& line) {
    auto& group = line.value("event", "") == "eval" ? record.eval : record.train;
    const double step = FieldOf(line, "step");
    for (const auto& [tag, value] : line.items()) {
      if (tag.find('/') == std::string::npos) continue;
      group[tag].x.push_back(step);
      group[tag].y.push_back(NumberOf(value));
    }
  });
  ForEachLine(run / "quant.jsonl", [&](const Json& line) { record.health.push_back(HealthOf(line)); });
  record.config = GivenLines(run / "config.yml");
  std::error_code missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(run / "checkpoints", missing)) {
    const std::string name = entry.path().filename().string();
    int64_t step = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
    if (error == std::errc() && end == name.data() + name.size()) record.checkpoints.push_back(step);
  }
  std::sort(record.checkpoints.begin(), record.checkpoints.end());
  return record;
}

}  // namespace octavo::train
