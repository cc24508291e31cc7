// Any bytes as a model of llama2.c: content or a file error, nothing else.
#include "octavo/base/error.h"
#include "octavo/checkpoint/llama2c.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    octavo::ParseLlama2c({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  } catch (const octavo::Error&) {
  }
  return 0;
}
