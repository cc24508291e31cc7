// The parts of the tokenizer benchmark that have no peer: long runs of one character, and round trips of random texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/text/tokenizer.h"

namespace octavo::bench {

// 10^6 equal characters through every supported pattern: the slowest, in seconds. Prints a line for each pattern.
double TimeEqualCharacters(bool json);

// decode(encode(x)) = x for `count` random texts; the number of failures.
int64_t CountRoundTripFailures(const text::Tokenizer& tokenizer, int64_t count, uint64_t seed);

}  // namespace octavo::bench
