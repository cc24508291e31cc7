// Any text as YAML: a tree whose line reads back as the same tree, or a usage error.
#include <cstdlib>

#include "octavo/base/error.h"
#include "octavo/config/yaml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string line;
  try {
    line = octavo::Yaml::Parse(text, "fuzz.yml").Flow();
  } catch (const octavo::Error&) {
    return 0;
  }
  try {
    if (octavo::Yaml::Parse(line, "again.yml").Flow() != line) std::abort();
  } catch (const octavo::Error&) {
    std::abort();
  }
  return 0;
}
