#include "octavo/server/model_context.h"

#include <algorithm>
#include <ctime>

#include "octavo/server/api_error.h"
#include "octavo/text/json_schema.h"

namespace octavo::server {
namespace {

// Of compiled schemas that are kept; masks have a bound of their own in VocabularyBytes.
constexpr size_t kMostSchemas = 64;
constexpr size_t kMostSchemaBytes = size_t{1} << 20;

// Of blanks and the like that a tokenizer may drop.
constexpr size_t kSlackBytes = size_t{64} << 10;

bool Holds(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

ModelContext::ModelContext(engine::Service& service, ApiOptions options)
    : service_(service), options_(std::move(options)), created_(std::time(nullptr)) {
  for (const auto& entry : options_.templates.templates) {
    const std::string& source = entry.second;
    templates_.emplace(entry.first, LoadedTemplate{.chat = text::ChatTemplate::Parse(source),
                                                   .tools = ToolFormOf(source),
                                                   .reasoning = Holds(source, "<think>"),
                                                   .developer = Holds(source, "developer")});
  }
  try {
    vocabulary_ = text::VocabularyBytes::Make(tokenizer());
  } catch (const Error& error) {
    vocabulary_error_ = error.message();
    return;
  }
  longest_token_ = vocabulary_->longest();
  for (int32_t id = 0; id < tokenizer().vocabulary_size(); ++id) {
    if (tokenizer().IsSpecial(id)) longest_token_ = std::max(longest_token_, tokenizer().Token(id).value_or("").size());
  }
}

engine::ModelInfo ModelContext::Find(std::string_view name) const {
  const std::vector<engine::ModelInfo> models = service_.Models();
  if (name.empty()) return models.front();
  for (const engine::ModelInfo& model : models) {
    if (model.id == name) return model;
  }
  throw ApiError(404, "model_not_found", "model",
                 fmt::format("there is no model '{}'; this server has '{}'", name, models.front().id));
}

const LoadedTemplate& ModelContext::Template(bool with_tools) const {
  if (templates_.empty()) {
    throw ApiError(400, "unsupported_value", "messages",
                   "this model has no chat template; use /v1/completions, or start the server with chat_template=FILE");
  }
  const auto tool_use = templates_.find("tool_use");
  if (with_tools && tool_use != templates_.end()) return tool_use->second;
  const auto usual = templates_.find("default");
  return usual != templates_.end() ? usual->second : templates_.begin()->second;
}

std::shared_ptr<const text::TokenConstraint> ModelContext::Constraint(std::string_view param,
                                                                      const std::string& schema_json) const {
  if (vocabulary_ == nullptr) throw ApiError(400, "unsupported_value", std::string(param), vocabulary_error_);
  {
    const std::lock_guard lock(mutex_);
    const auto known = constraints_.find(schema_json);
    if (known != constraints_.end()) {
      known->second.first = ++uses_;
      return known->second.second;
    }
  }
  std::shared_ptr<const text::TokenConstraint> made;
  try {
    const text::JsonSchemaOptions options{.end_ids = options_.end_ids};
    made = schema_json.empty() ? text::CompileJsonObject(vocabulary_, options)
                               : text::CompileJsonSchema(schema_json, vocabulary_, options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage) throw;
    throw ApiError(400, "invalid_schema", std::string(param), error.what());
  }
  const std::lock_guard lock(mutex_);
  constraint_bytes_ += schema_json.size();
  if (!constraints_.emplace(schema_json, std::make_pair(++uses_, made)).second) constraint_bytes_ -= schema_json.size();
  while (constraints_.size() > kMostSchemas || constraint_bytes_ > kMostSchemaBytes) {
    const auto oldest = std::min_element(constraints_.begin(), constraints_.end(),
                                         [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
    constraint_bytes_ -= oldest->first.size();
    constraints_.erase(oldest);
  }
  return made;
}

std::shared_ptr<const text::TokenConstraint> ModelContext::AnyObject(std::string_view param) const {
  return Constraint(param, "");
}

void ModelContext::RequireFits(std::string_view param, size_t bytes, int64_t context_length) const {
  const size_t most = static_cast<size_t>(context_length) * longest_token_ + kSlackBytes;
  if (longest_token_ == 0 || bytes <= most) return;
  throw ApiError(400, "context_length_exceeded", std::string(param),
                 fmt::format("{}: a text of {} bytes, the {} tokens that the model takes hold {} at the most", param,
                             bytes, context_length, most));
}

std::string ModelContext::TokenBytes(int32_t id) const {
  if (vocabulary_ != nullptr && id >= 0 && id < vocabulary_->size()) {
    const std::string_view bytes = vocabulary_->bytes(id);
    if (!bytes.empty()) return std::string(bytes);
  }
  return tokenizer().Token(id).value_or("");
}

}  // namespace octavo::server
