// The values of all codes of a number format, ready for decoding kernels. Kept apart from float_source.h because
// instruction-set units include that one and must not see the format table.
#pragma once

#include "octavo/kernels/float_source.h"
#include "octavo/numerics/format.h"

namespace octavo::kernels {

// The table of a format of at most 8 bits; a usage error for a wider one. It lives as long as the program. A code may
// carry bits above its own, as an int4 in a signed byte does: the low bits decide. The -0 of a 4-bit float reads as +0,
// which lets packed weights treat such a format as whole numbers; a sum that starts from +0 cannot tell the two apart
// unless it underflows.
const CodeTable& CodeTableOf(Format format);

// A table of one's own: value[c] for c < count (16 or 256), zero for the rest.
CodeTable MakeCodeTable(const float* value, int count);

}  // namespace octavo::kernels
