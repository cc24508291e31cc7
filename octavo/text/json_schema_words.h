// The words of JSON schemas: which are known, what types and fixed values a schema names, references, formats, and
// JSON text. Used by json_schema_compile.cc only. Nothing here builds rules.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/text/tokenizer_json.h"

namespace octavo::text {

// A usage Error with its place, a JSON pointer into the schema ("" is the whole).
class SchemaError : public Error {
 public:
  SchemaError(const std::string& where, const std::string& reason);
};

// The member of an object, a JSON null too; null pointer for a missing one and for what is no object.
const JsonValue* Member(const JsonValue& schema, std::string_view name);

// Says nothing about values: title, description, default, …
bool IsAnnotation(std::string_view word);

// Throws for a word that is unknown or cannot be enforced.
void CheckWords(const JsonValue& schema);
// Throws when `word` has company other than annotations.
void CheckAlone(const JsonValue& schema, std::string_view word);

// The types that a schema names, or that its words are about; empty: any.
std::set<std::string> TypesOf(const JsonValue& schema);
// The JSON texts of enum and const that have one of the types.
std::set<std::string> LiteralsOf(const JsonValue& schema, const std::set<std::string>& types);
std::set<std::string> RequiredOf(const JsonValue& schema);

// The value that "#/…" points to, or null.
const JsonValue* FindPointer(const JsonValue& root, std::string_view reference);
// A name as a part of a pointer.
std::string PointerPart(std::string_view name);

// The pattern of a format. Throws for one that is not known.
std::string_view FormatPattern(std::string_view format);

}  // namespace octavo::text
