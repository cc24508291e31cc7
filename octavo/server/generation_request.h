// A request for text as the routes understand it: what goes to the engine and how the answer is to be written. Made
// from the body of /v1/completions (here) and /v1/chat/completions (chat_request.h); every number is checked on the
// way.
#pragma once

#include <string>
#include <vector>

#include "octavo/engine/service.h"
#include "octavo/server/fields.h"
#include "octavo/server/model_context.h"
#include "octavo/server/output_parser.h"

namespace octavo::server {

// A prompt as an answer with echo gives it back.
struct EchoedPrompt {
  std::string text;              // the text that was sent, or that of the token ids
  std::vector<int64_t> offsets;  // of each token: characters of the text before it; only with logprobs
};

struct GenerationRequest {
  engine::ModelInfo model;
  engine::Request base;                       // of each prompt, but for the prompt itself
  std::vector<std::vector<int32_t>> prompts;  // one for chat
  bool chat = false;
  std::string limit_field = "max_tokens";  // the one that says how many tokens to generate
  bool stream = false, include_usage = false;
  bool echo = false;                 // completions: the answer begins with the prompt
  std::vector<EchoedPrompt> echoed;  // one for each prompt then
  bool logprobs = false;
  bool return_token_ids = false;
  OutputForm form;                   // chat
  std::vector<std::string> ignored;  // fields that were sent and mean nothing here
};

// The fields that both routes share.
void ReadSharedFields(Fields& fields, const ModelContext& context, GenerationRequest& request);

// response_format, and the names other servers use for the same that are refused: a constraint that is not enforced
// would be free text in disguise.
void ReadResponseFormat(Fields& fields, const ModelContext& context, GenerationRequest& request);

// What was sent and not read becomes `ignored`, or an error if the server is strict.
void FinishFields(const Fields& fields, const ModelContext& context, GenerationRequest& request);

// Throws ApiError when the server is strict and there are any.
void RefuseIgnored(const std::vector<std::string>& names, const ModelContext& context);

// The names as the value of x-octavo-ignored: clients chose them, so only plain characters pass, and not many of them.
std::string IgnoredHeader(const std::vector<std::string>& names);

GenerationRequest ReadCompletionRequest(const JsonValue& body, const ModelContext& context);

}  // namespace octavo::server
