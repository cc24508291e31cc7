// From what a user wrote to a checked value of a key. One canonical form per value, so that equal settings compare
// equal and print equal: 1_000 is 1000, "silu,linear" is [silu, linear], 'int8' is int8.
#pragma once

#include <string_view>

#include "octavo/config/key_table.h"
#include "octavo/config/yaml.h"

namespace octavo {

// The value in the form that its key wants. Throws a usage Error when it cannot be: `steps='x' WHERE: expected a whole
// number`.
Yaml Canonical(const KeyInfo& key, const Yaml& value);

// A value from the command line or the environment: a YAML scalar, or a list or map in brackets. Text keys take every
// character as it is, apart from quotes around the whole. `source` says where it stands ("on the command line").
Yaml ValueFromText(const KeyInfo& key, std::string_view text, std::string_view source);

}  // namespace octavo
