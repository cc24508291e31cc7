// The configs and models that are part of the binary: base.yml and other whole configs, and one file per model with its
// shape. Used by Settings, `octavo ls` and `octavo cp`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/embedded_file.h"

namespace octavo {

// "base.yml", … in order of name; keys.yml, which is no config, is left out.
std::vector<EmbeddedFile> BuiltInConfigs();
// "gemma-2b.yml", … in order of name.
std::span<const EmbeddedFile> BuiltInModels();
// What base.yml cannot say about its keys.
std::string_view KeyTableText();

// By name as users write it: "base.yml", "configs/base.yml", "src/maxtext/configs/base.yml".
std::optional<EmbeddedFile> FindBuiltInConfig(std::string_view name);
// "llama2-7b".
std::optional<EmbeddedFile> FindBuiltInModel(std::string_view name);

}  // namespace octavo
