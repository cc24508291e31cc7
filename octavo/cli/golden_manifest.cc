#include "octavo/cli/golden_manifest.h"

#include <nlohmann/json.hpp>

#include "octavo/base/mapped_file.h"
#include "octavo/checkpoint/strict_json.h"

namespace octavo {

std::string ManifestKind(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "manifest.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return "";
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const nlohmann::json manifest = ParseStrictJson(text, path.string());
  if (!manifest.is_object()) return "";
  const auto kind = manifest.find("kind");
  return kind != manifest.end() && kind->is_string() ? kind->get<std::string>() : "";
}

}  // namespace octavo
