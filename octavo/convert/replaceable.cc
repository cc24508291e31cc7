#include "octavo/convert/replaceable.h"

#include <algorithm>
#include <fstream>

#include "octavo/base/error.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/weights/carried.h"

namespace octavo::convert {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFix = "choose another name for the result";

[[noreturn]] void Refuse(const fs::path& target, std::string_view why) {
  throw Error(ErrorCode::kUsage, fmt::format("{} is not replaced: {}", target.string(), why),
              "choose another name for the result, or remove it yourself");
}

fs::path RealPath(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(fs::absolute(path), error);
  const fs::path clean = error ? fs::absolute(path).lexically_normal() : real;
  return clean.has_filename() ? clean : clean.parent_path();
}

bool IsInside(const fs::path& inner, const fs::path& outer) {
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

void CheckFile(const fs::path& target) {
  std::error_code error;
  char magic[4] = {};
  if (fs::is_regular_file(target, error)) std::ifstream(target, std::ios::binary).read(magic, sizeof magic);
  if (std::string_view(magic, sizeof magic) != "GGUF") Refuse(target, "it is not a GGUF file");
}

// Whether convert gives a file of a model this name.
bool IsWritten(std::string_view name) {
  const bool weights = (name.starts_with("model") || name.starts_with("state-")) && name.ends_with(".safetensors");
  return weights || name == "manifest.json" || name == "config.json" || name == "model.safetensors.index.json" ||
         weights::IsCarriedName(name);
}

void CheckFolder(const fs::path& target) {
  if (!fs::is_directory(fs::symlink_status(target))) Refuse(target, "it is not a folder");
  bool empty = true, model = false;
  std::string other;
  for (const fs::directory_entry& entry : fs::directory_iterator(target)) {
    const std::string name = entry.path().filename().string();
    empty = false;
    if (entry.is_directory()) Refuse(target, fmt::format("it holds the folder '{}', a model does not", name));
    model = model || name == "manifest.json" || name == "config.json";
    if (!IsWritten(name)) other = name;
  }
  if (empty) return;
  if (!model) Refuse(target, "it holds files and no model (neither manifest.json nor config.json)");
  if (IsCheckpoint(target) && Checkpoint(target).manifest().kind == "train") {
    Refuse(target, "it is a checkpoint of a training run");
  }
  if (!other.empty()) Refuse(target, fmt::format("it holds '{}', which convert does not write", other));
}

}  // namespace

void CheckReplaceable(const fs::path& target, const fs::path& source, TargetFormat format) {
  std::error_code error;
  const fs::path shown = target.has_filename() ? target : target.parent_path();
  if (!fs::exists(fs::symlink_status(shown, error))) return;
  const fs::path to = RealPath(shown), from = RealPath(source);
  if (to == from) throw Error(ErrorCode::kUsage, fmt::format("{} is the source itself", shown.string()), kFix);
  if (IsInside(from, to)) {
    throw Error(ErrorCode::kUsage, fmt::format("{} holds the source {}", shown.string(), source.string()), kFix);
  }
  if (format == TargetFormat::kGguf) return CheckFile(shown);
  if (IsInside(to, from)) {
    throw Error(ErrorCode::kUsage, fmt::format("{} is inside the source {}", shown.string(), source.string()), kFix);
  }
  CheckFolder(shown);
}

}  // namespace octavo::convert
