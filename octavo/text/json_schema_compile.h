// From a JSON schema to the grammar that json_machine.h runs. Used by json_schema.cc only.
#pragma once

#include <string>
#include <string_view>

#include "octavo/text/json_grammar.h"
#include "octavo/text/tokenizer_json.h"

namespace octavo::text {

// Throws a usage Error with the place in the schema.
Grammar CompileSchema(const JsonValue& schema);

// Any JSON object.
Grammar AnyObjectGrammar();

// A string as JSON writes it, with quotes; control characters and nothing else are escaped.
std::string JsonText(std::string_view text);
// Any value, without white space.
std::string JsonText(const JsonValue& value);

}  // namespace octavo::text
