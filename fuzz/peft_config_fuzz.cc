// Any text as the adapter_config.json of a LoRA adapter: a configuration that answers, or a file error.
#include "octavo/base/error.h"
#include "octavo/weights/peft.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const octavo::weights::PeftConfig config =
        octavo::weights::ParsePeftConfig({reinterpret_cast<const char*>(data), size}, "fuzz");
    const std::string module = "model.layers.0.self_attn.q_proj";
    config.Targets(module);
    config.RankOf(module);
    config.ScaleOf(module);
  } catch (const octavo::Error&) {
  }
  return 0;
}
