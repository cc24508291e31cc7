// Any text as a config: settings that survive a round trip, or a usage error.
#include "octavo/base/error.h"
#include "octavo/config/settings.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const octavo::Settings settings = octavo::Settings::FromText(text, "fuzz.yml");
    const octavo::Settings again = octavo::Settings::FromText(settings.EffectiveYaml(), "again.yml");
    if (!octavo::Settings::Diff(settings, again).empty()) __builtin_trap();
  } catch (const octavo::Error& error) {
    if (std::string_view(error.what()).find("again.yml") != std::string_view::npos) __builtin_trap();
  }
  return 0;
}
