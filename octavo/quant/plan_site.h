// How one site would be quantized under each family of treatment: the descriptions that a plan holds. Only plan.cc uses
// it.
#pragma once

#include "octavo/quant/plan.h"

namespace octavo::quant {

// Fills the three products, coupling and weight bits of a site whose shapes, dims and treatment are set. Usage errors
// name the site.
void DescribeSite(SitePlan& site, bool ragged, bool backward);

// A site that stays in float.
void DescribeFloatSite(SitePlan& site);

}  // namespace octavo::quant
