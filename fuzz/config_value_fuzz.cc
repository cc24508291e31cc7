// Any bytes as the value of any key, from the command line and from a file: a value that survives being written into a
// config and read back, or a usage error.
#include "octavo/base/error.h"
#include "octavo/config/key_table.h"
#include "octavo/config/key_value.h"

namespace {

// A value that was accepted must be the same after a round trip through a saved config.
void CheckRoundTrip(const octavo::KeyInfo& key, const octavo::Yaml& value) {
  const std::string line = value.Flow();
  try {
    const octavo::Yaml saved = octavo::Yaml::Parse("key: " + line + "  # comment\n", "saved.yml");
    if (octavo::Canonical(key, *saved.Find("key")).Flow() == line) return;
  } catch (const octavo::Error&) {
  }
  __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const octavo::KeyTable table = octavo::KeyTable::BuiltIn();
  if (size < 2) return 0;
  const octavo::KeyInfo& key = table.keys()[(data[0] * 256u + data[1]) % table.keys().size()];
  const std::string_view text(reinterpret_cast<const char*>(data + 2), size - 2);
  try {
    CheckRoundTrip(key, octavo::ValueFromText(key, text, "on the command line"));
  } catch (const octavo::Error&) {
  }
  try {
    const octavo::Yaml file = octavo::Yaml::Parse(text, "fuzz.yml");
    for (const auto& [name, value] : file.fields()) CheckRoundTrip(key, octavo::Canonical(key, value));
  } catch (const octavo::Error&) {
  }
  return 0;
}
