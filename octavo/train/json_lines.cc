#include "octavo/train/json_lines.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/publish.h"

namespace octavo::train {
namespace {

bool Keeps(const std::string& line, int64_t first_step) {
  const nlohmann::json value = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object() || !value.contains("step") || !value["step"].is_number_integer()) return false;
  const auto step = value["step"].get<int64_t>();
  return step < first_step || (step == first_step && value.value("event", "") == "eval");
}

}  // namespace

JsonLinesFile::JsonLinesFile(std::filesystem::path path, int64_t first_step) : path_(std::move(path)) {
  if (std::filesystem::exists(path_)) {
    std::string kept, line;
    std::ifstream old(path_);
    while (std::getline(old, line)) {
      if (Keeps(line, first_step)) kept += line + "\n";
    }
    PublishFile(path_, kept);
  }
  file_ = std::fopen(path_.c_str(), "ab");
  if (file_ == nullptr) {
    throw Error(ErrorCode::kJob, fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
  }
}

JsonLinesFile::~JsonLinesFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void JsonLinesFile::Add(std::string_view line) {
  const bool written = std::fwrite(line.data(), 1, line.size(), file_) == line.size() && std::fputc('\n', file_) != EOF;
  if (!written || std::fflush(file_) != 0) {
    throw Error(ErrorCode::kJob, fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)),
                "is the disk full?");
  }
}

}  // namespace octavo::train
