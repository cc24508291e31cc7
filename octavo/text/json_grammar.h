// The grammar that a JSON schema becomes: rules that call each other, each a small machine over bytes. Written by
// json_schema_compile.h, run by json_machine.h. A rule's place is a Frame, a plain value; what it has called and will
// come back to is the machine's business.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "octavo/text/byte_dfa.h"

namespace octavo::text {

constexpr uint32_t kNoLimit = UINT32_MAX;
constexpr uint32_t kNoRule = UINT32_MAX;

// Where a rule stands. `need` and `left` count down: how many more characters, items or members must and may come.
struct Frame {
  uint32_t rule = 0;
  uint16_t phase = 0;
  uint16_t space = 0;   // white space: how much may follow; see json_grammar.cc
  uint32_t state = 0;   // of an automaton; the next property or item
  uint32_t offset = 0;  // in the name of a property
  uint32_t need = 0;
  uint32_t left = 0;

  auto operator<=>(const Frame&) const = default;
};

struct Rule {
  enum class Kind : uint8_t {
    kNothing,   // accepts no text
    kDfa,       // scalars: `dfa`
    kString,    // a string of need to left characters
    kObject,    // `properties` in order, then members named by `key` with values of `item`
    kArray,     // `prefix`, then `item`s
    kChoice,    // one of `prefix`
    kDocument,  // short white space, then `item`
  } kind = Kind::kNothing;

  struct Property {
    std::string literal;  // the name as JSON, quotes and all
    uint32_t rule = kNoRule;
    bool required = false;
  };

  ByteDfa dfa;
  std::vector<Property> properties;
  std::vector<uint32_t> prefix;
  uint32_t key = kNoRule;
  uint32_t item = kNoRule;  // kNoRule: no further members or items
  uint32_t need = 0;
  uint32_t left = kNoLimit;
};

struct Grammar {
  std::vector<Rule> rules;
  uint32_t root = 0;  // a document
  ByteDfa char_dfa;   // one character of a string
  uint64_t id = 0;    // no two are alike in a process: names the masks in the cache
};

// Reads one byte: `out` gets every frame that goes on (an object has several names that may begin at once). True when
// the rule may end with this byte.
bool StepFrame(const Grammar& grammar, const Frame& frame, uint8_t byte, std::vector<Frame>& out);

// A rule that may be called without reading anything, and where to come back to.
struct FrameCall {
  uint32_t rule;
  std::optional<Frame> back;  // nothing: the called rule takes the caller's place
};
void CallsOf(const Grammar& grammar, const Frame& frame, std::vector<FrameCall>& out);

Frame StartFrame(const Grammar& grammar, uint32_t rule);

}  // namespace octavo::text
