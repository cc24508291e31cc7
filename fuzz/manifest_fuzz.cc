// Any text as a manifest behind a right digest of itself, so that what comes after that check is reached: a manifest or
// a file error, nothing else. The model in it is configured too.
#include <nlohmann/json.hpp>

#include "octavo/base/digest.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/manifest.h"
#include "octavo/checkpoint/strict_json.h"
#include "octavo/weights/model_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string body(reinterpret_cast<const char*>(data), size);
  const std::string digest = octavo::DigestHex(std::as_bytes(std::span(body)));
  try {
    octavo::ParseManifest("{\"digest\":\"" + digest + "\",\n" + body, "fuzz");
  } catch (const octavo::Error&) {
  }
  try {
    octavo::weights::ModelFromJson(octavo::ParseStrictJson(body, "fuzz"), "fuzz");
  } catch (const octavo::Error&) {
  }
  return 0;
}
