// Any text as the config.json of a model folder: a configuration or a file error, nothing else.
#include "octavo/base/error.h"
#include "octavo/weights/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    octavo::weights::ParseHfConfig({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const octavo::Error&) {
  }
  return 0;
}
