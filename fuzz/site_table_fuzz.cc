// Any text as a table of sites, and a plan of what it holds.
#include "octavo/base/error.h"
#include "octavo/cli/site_table.h"
#include "octavo/quant/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const octavo::SiteTable table = octavo::ParseSiteTable({reinterpret_cast<const char*>(data), size}, "fuzz");
    const octavo::quant::RuleSet rules({});
    octavo::quant::MakePlan([&](octavo::ops::Context& context) { octavo::RunSiteTable(table, context); }, rules);
  } catch (const octavo::Error&) {
  }
  return 0;
}
