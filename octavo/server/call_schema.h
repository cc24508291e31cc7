// The JSON schema of a call that must be made: which tools there are and what each takes. Used by chat_request.cc for
// tool_choice required and for a named function.
#pragma once

#include <string>
#include <vector>

#include "octavo/server/fields.h"

namespace octavo::server {

struct CallableTool {
  std::string name;
  JsonValue parameters;  // a schema, or none: it takes nothing
  std::string place;     // of the parameters in the request: "tools[0].function.parameters"
};

// {"name": one of them, "arguments": what it takes}. References inside a tool's parameters stay inside them: "#" is the
// parameters, as whoever wrote them meant it.
std::string CallSchema(const std::vector<CallableTool>& tools);
// What is said of places in that schema, with the places of the request instead.
std::string InRequest(const std::vector<CallableTool>& tools, std::string message);

}  // namespace octavo::server
