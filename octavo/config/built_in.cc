#include "octavo/config/built_in.h"

namespace octavo {

// Made by cmake/embed.cmake.
std::span<const EmbeddedFile> EmbeddedConfigs();
std::span<const EmbeddedFile> EmbeddedModels();

namespace {

constexpr std::string_view kKeyTable = "keys.yml";
// Folders that MaxText's documentation writes before the names of its configs.
constexpr std::string_view kFolders[] = {"src/maxtext/configs/", "maxtext/configs/", "src/MaxText/configs/",
                                         "MaxText/configs/", "configs/"};

}  // namespace

std::vector<EmbeddedFile> BuiltInConfigs() {
  std::vector<EmbeddedFile> files;
  for (const EmbeddedFile& file : EmbeddedConfigs()) {
    if (file.name != kKeyTable) files.push_back(file);
  }
  return files;
}

std::span<const EmbeddedFile> BuiltInModels() { return EmbeddedModels(); }

std::string_view KeyTableText() {
  for (const EmbeddedFile& file : EmbeddedConfigs()) {
    if (file.name == kKeyTable) return file.text;
  }
  return {};
}

std::optional<EmbeddedFile> FindBuiltInConfig(std::string_view name) {
  for (std::string_view folder : kFolders) {
    if (name.starts_with(folder)) {
      name.remove_prefix(folder.size());
      break;
    }
  }
  for (const EmbeddedFile& file : BuiltInConfigs()) {
    if (file.name == name) return file;
  }
  return std::nullopt;
}

std::optional<EmbeddedFile> FindBuiltInModel(std::string_view name) {
  for (const EmbeddedFile& file : BuiltInModels()) {
    if (file.name.substr(0, file.name.size() - 4) == name) return file;  // without ".yml"
  }
  return std::nullopt;
}

}  // namespace octavo
