// Folders of reference data with a manifest.json that says what they are: models, files of other tools.
#pragma once

#include <filesystem>
#include <string>

namespace octavo {

// The manifest's "kind"; empty when the folder has no manifest or the manifest no kind. Broken JSON is a file error.
std::string ManifestKind(const std::filesystem::path& folder);

}  // namespace octavo
