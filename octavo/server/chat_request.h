// The body of /v1/chat/completions: messages through the model's chat template, tools, how many tokens. What users
// wrote stays text whatever it spells; only the template's own words become special tokens.
#pragma once

#include <string>

#include "octavo/server/generation_request.h"
#include "octavo/text/chat_template.h"

namespace octavo::server {

GenerationRequest ReadChatRequest(const JsonValue& body, const ModelContext& context);

// The conversation as the model will see it: /apply-template and /tokenize.
text::Rendered RenderChatBody(Fields& fields, const ModelContext& context);

}  // namespace octavo::server
