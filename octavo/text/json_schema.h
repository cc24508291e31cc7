// Structured output: a JSON schema becomes a constraint of the tokens that may come next, so that whatever is sampled
// through it is JSON the schema accepts. Used by the server (`response_format`) and the command line. What cannot be
// enforced is refused with the place in the schema: nothing is ever silently left out. Not a validator of documents.
//
// The language: type (one or a list), properties (in the order of the schema), required, additionalProperties,
// minProperties/maxProperties of maps, items, prefixItems, minItems, maxItems, enum, const, anyOf, oneOf of
// alternatives that exclude each other, allOf of one, $ref to "#", $defs and definitions (recursive too), minLength,
// maxLength, pattern, format, minimum, maximum, exclusiveMinimum, exclusiveMaximum, and annotations. Texts are a
// subset of what the schema accepts: properties come in order, white space is short, integers have at most 18 digits.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "octavo/text/token_constraint.h"
#include "octavo/text/vocabulary_bytes.h"

namespace octavo::text {

struct JsonSchemaOptions {
  // The ids that end a text; empty: those of the vocabulary (the tokenizer's EOS).
  std::vector<int32_t> end_ids;
  // Bytes of schema text that are accepted.
  size_t most_bytes = size_t{1} << 20;
};

// The constraint at the beginning of a text; Clone() it for each sequence. Throws a usage Error that says where
// (a JSON pointer into the schema) and why a schema cannot be enforced. May be called from any thread; clones of one
// constraint may be used from different threads.
std::shared_ptr<const TokenConstraint> CompileJsonSchema(std::string_view schema_json,
                                                         std::shared_ptr<const VocabularyBytes> vocabulary,
                                                         const JsonSchemaOptions& options = {});

// Any JSON object: `response_format` {"type": "json_object"}.
std::shared_ptr<const TokenConstraint> CompileJsonObject(std::shared_ptr<const VocabularyBytes> vocabulary,
                                                         const JsonSchemaOptions& options = {});

}  // namespace octavo::text
