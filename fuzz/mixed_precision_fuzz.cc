// Any text as the JSON of intmp.
#include "octavo/base/error.h"
#include "octavo/quant/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    octavo::quant::ParseMixedPrecision({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const octavo::Error&) {
  }
  return 0;
}
