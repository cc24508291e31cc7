// The model that a server serves, as the routes see it: the engine's service, the chat templates read once, the bytes
// of its tokens, constraints for structured output. Shared by all requests; every method may be called from any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "octavo/engine/service.h"
#include "octavo/server/api_options.h"
#include "octavo/server/tool_calls.h"
#include "octavo/text/chat_template.h"
#include "octavo/text/token_constraint.h"
#include "octavo/text/vocabulary_bytes.h"

namespace octavo::server {

struct LoadedTemplate {
  text::ChatTemplate chat;
  ToolForm tools;  // the form in which it wants calls
  bool reasoning;  // it knows <think>
  bool developer;  // it knows the role of that name
};

class ModelContext {
 public:
  // Throws the TemplateError of a chat template that is not understood. The service must outlive the context.
  ModelContext(engine::Service& service, ApiOptions options);

  engine::Service& service() const { return service_; }
  const text::Tokenizer& tokenizer() const { return service_.tokenizer(); }
  const ApiOptions& options() const { return options_; }
  int64_t created() const { return created_; }

  // The model a client named; the base model without a name. Throws ApiError 404.
  engine::ModelInfo Find(std::string_view name) const;
  // Throws ApiError 400 when the model has no chat template.
  const LoadedTemplate& Template(bool with_tools) const;

  // The constraint of a schema, compiled once while it is in use. Throws ApiError 400 invalid_schema.
  std::shared_ptr<const text::TokenConstraint> Constraint(std::string_view param, const std::string& schema_json) const;
  // Any JSON object.
  std::shared_ptr<const text::TokenConstraint> AnyObject(std::string_view param) const;

  // Throws ApiError 400 for a text that cannot fit into the context, whatever its tokens are: encoding what is refused
  // afterwards costs many times its size.
  void RequireFits(std::string_view param, size_t bytes, int64_t context_length) const;

  // The text that a token adds, whole characters or not; a special token's name.
  std::string TokenBytes(int32_t id) const;

 private:
  engine::Service& service_;
  const ApiOptions options_;
  const int64_t created_;
  std::map<std::string, LoadedTemplate, std::less<>> templates_;
  // Made at the start: a large one takes a moment that no request should wait for.
  std::shared_ptr<const text::VocabularyBytes> vocabulary_;
  std::string vocabulary_error_;  // why there is none
  size_t longest_token_ = 0;      // in bytes; 0: a token may stand for a text of any length
  mutable std::mutex mutex_;
  // Schemas asked for of late, by their text: clients send the same one again and again.
  mutable std::map<std::string, std::pair<uint64_t, std::shared_ptr<const text::TokenConstraint>>> constraints_;
  mutable size_t constraint_bytes_ = 0;
  mutable uint64_t uses_ = 0;
};

}  // namespace octavo::server
