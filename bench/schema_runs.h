// What structured output costs: compiling a schema, and filling the mask of each next token.
#pragma once

#include <string>

#include "octavo/text/tokenizer.h"

namespace octavo::bench {

// Prints a line for each schema and for preparing the vocabulary. `texts` are sampled for each, twice: the first time
// nothing is remembered. Returns the mean seconds of a mask the second time, of the slowest schema.
double TimeSchemas(const text::Tokenizer& tokenizer, int texts, bool json);

}  // namespace octavo::bench
