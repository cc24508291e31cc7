// Any bytes as a safetensors file: content or a file error, nothing else.
#include "octavo/base/error.h"
#include "octavo/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    octavo::ParseSafetensors({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  } catch (const octavo::Error&) {
  }
  return 0;
}
