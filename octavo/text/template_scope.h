// Decides at parse time where every name of a template lives, with Jinja's scoping rules: loops, macros, set blocks and
// with open scopes, if does not; a name assigned in a scope starts there as the outer one. After this pass a name is a
// slot number. Also finds unknown filters and tests, and break outside a loop.
#pragma once

#include "octavo/text/template_ast.h"

namespace octavo::text::jinja {

// Throws TemplateError.
void ResolveScopes(Program* program);

}  // namespace octavo::text::jinja
