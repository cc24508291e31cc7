// Numbers between bounds as automata over the text of JSON numbers. Used by structured output.
#pragma once

#include <optional>
#include <string>

#include "octavo/text/byte_dfa.h"

namespace octavo::text {

// A bound as decimal digits: "-12.5" is {true, "12", "5"}. No zeros in front or behind, but "0" for the whole part.
struct DecimalBound {
  bool negative = false;
  std::string whole = "0";
  std::string fraction;
  bool exclusive = false;

  bool IsZero() const { return whole == "0" && fraction.empty(); }
};

// From a double, which is what JSON bounds are. Throws a usage Error beyond 18 digits before or behind the point.
DecimalBound MakeBound(double value, bool exclusive);

struct NumberBounds {
  std::optional<DecimalBound> least, most;
};

// Integers of at most 18 digits, and numbers of at most 18 digits before and 17 behind the point; with bounds of at
// most 15 digits in all and without exponents. An empty automaton when nothing lies between the bounds.
ByteDfa CompileInteger(const NumberBounds& bounds);
ByteDfa CompileNumber(const NumberBounds& bounds);

}  // namespace octavo::text
