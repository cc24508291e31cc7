// A text file of the source tree that is part of the binary: recipes, built-in configs. cmake/embed.cmake makes the
// tables.
#pragma once

#include <span>
#include <string_view>

namespace octavo {

struct EmbeddedFile {
  std::string_view name;  // without folders
  std::string_view text;
};

}  // namespace octavo
