// Any text as a recipe of rules: rules or a usage error.
#include "octavo/base/error.h"
#include "octavo/quant/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const octavo::quant::RuleSet rules(octavo::quant::RulesOf(octavo::quant::ReadRecipe(text, "fuzz"), {}));
    rules.Match("decoder/layers_0/mlp/wi_0", octavo::ops::OpKind::kDotGeneral, true);
  } catch (const octavo::Error&) {
  }
  return 0;
}
