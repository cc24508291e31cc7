#include "octavo/server/api.h"

#include "octavo/engine/validate.h"
#include "octavo/server/api_error.h"
#include "octavo/server/chat_request.h"
#include "octavo/server/generation.h"
#include "octavo/server/json_writer.h"
#include "octavo/version.h"

namespace octavo::server {
namespace {

void WriteModel(JsonWriter& json, const engine::ModelInfo& model, const ModelContext& context) {
  json.BeginObject().Field("id", model.id).Field("object", "model").Field("created", context.created());
  json.Field("owned_by", "octavo").Field("max_model_len", model.context_length);
  json.Field("root", model.parent.empty() ? model.id : model.parent).Key("parent");
  if (model.parent.empty()) {
    json.Null();
  } else {
    json.String(model.parent);
  }
  json.Key("meta").BeginObject().Field("n_params", model.parameters).Field("size", model.bytes);
  json.Field("quantization", model.quantization).Field("n_vocab", model.vocabulary_size);
  json.Field("chat", !context.options().templates.templates.empty()).EndObject().EndObject();
}

// Of a text or a list that is only looked at, not run.
constexpr size_t kMostTextBytes = size_t{4} << 20, kMostTokens = 1'000'000;

void RequireShort(std::string_view param, std::string_view text) {
  if (text.size() <= kMostTextBytes) return;
  throw ApiError(413, "", std::string(param),
                 fmt::format("{}: a text of {} bytes, at most {} are taken", param, text.size(), kMostTextBytes));
}

// The fields of the engine by the names that clients use. Hints are for the command line.
ApiError Translate(const engine::RequestError& error, bool chat, const std::string& limit_field) {
  if (error.reason == "model_not_found") return ApiError(404, error.reason, "model", error.message());
  const std::pair<std::string_view, std::string_view> names[] = {{"max_new_tokens", limit_field},
                                                                 {"min_new_tokens", "min_tokens"},
                                                                 {"samples", "n"},
                                                                 {"stop_ids", "stop_token_ids"}};
  std::string param = error.param, message = error.message();
  if (chat && param == "prompt") param = "messages";
  for (const auto& [ours, theirs] : names) {
    if (param == ours) param = theirs;
    const std::string assigned = fmt::format("{}=", ours);
    for (size_t at = 0; (at = message.find(assigned, at)) != std::string::npos; at += theirs.size()) {
      message.replace(at, ours.size(), theirs);
    }
  }
  return ApiError(400, error.reason, param, message);
}

}  // namespace

Api::Api(engine::Service& service, ApiOptions options)
    : context_(service, std::move(options)), adapter_calls_(service, context_.options().adapters) {}

void Api::AddRoutes(Router& router) {
  const auto add = [&](const char* method, const char* path, auto&& answer, bool is_public, bool quick) {
    router.Add({.method = method, .path = path, .answer = answer, .is_public = is_public, .quick = quick});
  };
  const bool open = context_.options().metrics_public;
  const auto health = [this](Answer exchange) { Health(exchange); };
  add("GET", "/health", health, true, true);
  add("GET", "/v1/health", health, true, true);
  add(
      "GET", "/v1/models", [this](Answer exchange) { Models(exchange); }, false, true);
  add(
      "GET", "/v1/models/*", [this](Answer exchange) { Model(exchange); }, false, true);
  add(
      "GET", "/version", [this](Answer exchange) { Version(exchange); }, open, true);
  add(
      "GET", "/metrics",
      [this](Answer exchange) {
        exchange->Send({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .body = metrics_.Render(context_.options().metrics_prefix, context_.service().Models().at(0).id,
                                                context_.service().Stats(), connections_())});
      },
      open, true);
  const Access* access = &router.access();
  add(
      "POST", "/v1/chat/completions", [this, access](Answer exchange) { Generate(exchange, true, *access); }, false,
      false);
  add(
      "POST", "/v1/completions", [this, access](Answer exchange) { Generate(exchange, false, *access); }, false, false);
  add(
      "POST", "/v1/load_lora_adapter", [this](Answer exchange) { ChangeAdapters(exchange, true); }, false, false);
  add(
      "POST", "/v1/unload_lora_adapter", [this](Answer exchange) { ChangeAdapters(exchange, false); }, false, false);
  add(
      "POST", "/tokenize", [this](Answer exchange) { Tokenize(exchange); }, false, false);
  add(
      "POST", "/detokenize", [this](Answer exchange) { Detokenize(exchange); }, false, false);
  add(
      "POST", "/apply-template", [this](Answer exchange) { ApplyTemplate(exchange); }, false, false);
}

void Api::Health(Answer exchange) const {
  if (draining_) return exchange->Send(WaitResponse(503, "draining", "the server is finishing its last requests", 5));
  exchange->Send({.body = "{\"status\":\"ok\"}\n"});
}

void Api::Version(Answer exchange) const {
  JsonWriter json;
  json.BeginObject().Field("version", OCTAVO_VERSION).Field("commit", OCTAVO_COMMIT).EndObject();
  exchange->Send({.body = json.Take() + "\n"});
}

void Api::Models(Answer exchange) const {
  JsonWriter json;
  json.BeginObject().Field("object", "list").Key("data").BeginArray();
  for (const engine::ModelInfo& model : context_.service().Models()) WriteModel(json, model, context_);
  json.EndArray().EndObject();
  exchange->Send({.body = json.Take() + "\n"});
}

void Api::Model(Answer exchange) const {
  JsonWriter json;
  WriteModel(json, context_.Find(exchange->request().path.substr(std::string_view("/v1/models/").size())), context_);
  exchange->Send({.body = json.Take() + "\n"});
}

void Api::Generate(Answer exchange, bool chat, const Access& access) {
  std::string limit_field;
  try {
    if (draining_) throw engine::Busy("the server is finishing its last requests", 5, true);
    const JsonValue body = ParseBody(exchange->request().body);
    GenerationRequest request = chat ? ReadChatRequest(body, context_) : ReadCompletionRequest(body, context_);
    request.base.cache_scope = access.Scope(exchange->request());
    limit_field = request.limit_field;
    exchange->DropBody();  // the answer may take long
    std::make_shared<Generation>(context_, metrics_, exchange, std::move(request))->Begin();
  } catch (const engine::Busy& busy) {
    metrics_.Rejected(busy.stopping ? "draining" : "queue_full");
    throw;
  } catch (const engine::RequestError& error) {
    metrics_.Rejected("invalid");
    throw Translate(error, chat, limit_field);
  } catch (const Error&) {
    metrics_.Rejected("invalid");
    throw;
  }
}

void Api::ChangeAdapters(Answer exchange, bool load) {
  if (draining_) throw engine::Busy("the server is finishing its last requests", 5, true);
  if (load) {
    adapter_calls_.Load(exchange);
  } else {
    adapter_calls_.Unload(exchange);
  }
}

// The names of llama.cpp (content, add_special, tokens) and of vLLM (prompt or messages, add_special_tokens, count).
void Api::Tokenize(Answer exchange) const {
  Fields fields(ParseBody(exchange->request().body));
  const engine::ModelInfo model = context_.Find(fields.Text("model").value_or(""));
  const std::optional<std::string> content = fields.Text("content"), prompt = fields.Text("prompt");
  const bool with_pieces = fields.Bool("with_pieces", false);
  std::vector<int32_t> ids;
  if (content || prompt) {
    const char* name = content ? "content" : "prompt";
    RequireShort(name, content ? *content : *prompt);
    const bool special = prompt ? fields.Bool("add_special_tokens", true) : fields.Bool("add_special", false);
    ids = context_.tokenizer().Encode(content ? *content : *prompt,
                                      {.add_special = special, .parse_special = fields.Bool("parse_special", true)});
  } else if (fields.Has("messages")) {
    const text::Rendered rendered = RenderChatBody(fields, context_);
    RequireShort("messages", rendered.text);
    const std::vector<text::TextPiece> pieces = rendered.Pieces();
    ids = context_.tokenizer().Encode(pieces, fields.Bool("add_special_tokens", false));
  } else {
    ThrowInvalid("content", "expected content, prompt or messages");
  }
  if (ids.size() > kMostTokens) {
    const char* name = content ? "content" : prompt ? "prompt" : "messages";
    ThrowInvalid(name, fmt::format("{} tokens, at most {} are given", ids.size(), kMostTokens));
  }
  JsonWriter json;
  json.BeginObject().Key("tokens").BeginArray();
  for (const int32_t id : ids) {
    if (with_pieces) {
      json.BeginObject().Field("id", id).Field("piece", context_.TokenBytes(id)).EndObject();
    } else {
      json.Int(id);
    }
  }
  json.EndArray().Field("count", static_cast<int64_t>(ids.size())).Field("max_model_len", model.context_length);
  json.EndObject();
  SendRead(exchange, fields, json);
}

// With the names of fields that were sent and mean nothing here.
void Api::SendRead(Answer exchange, const Fields& fields, JsonWriter& json) const {
  const std::vector<std::string> ignored = fields.Unread();
  RefuseIgnored(ignored, context_);
  HttpResponse response{.body = json.Take() + "\n"};
  if (!ignored.empty()) response.headers.emplace_back("x-octavo-ignored", IgnoredHeader(ignored));
  exchange->Send(std::move(response));
}

void Api::Detokenize(Answer exchange) const {
  Fields fields(ParseBody(exchange->request().body));
  const engine::ModelInfo model = context_.Find(fields.Text("model").value_or(""));
  if (!fields.Has("tokens")) ThrowInvalid("tokens", "expected a list of token ids");
  const std::vector<int32_t> ids = fields.Ids("tokens", model.vocabulary_size - 1, kMostTokens);
  const std::string text = context_.tokenizer().Decode(ids, {.skip_unknown_ids = true});
  JsonWriter json;
  json.BeginObject().Field("content", text).Field("prompt", text).EndObject();
  SendRead(exchange, fields, json);
}

void Api::ApplyTemplate(Answer exchange) const {
  Fields fields(ParseBody(exchange->request().body));
  context_.Find(fields.Text("model").value_or(""));
  JsonWriter json;
  json.BeginObject().Field("prompt", RenderChatBody(fields, context_).text).EndObject();
  SendRead(exchange, fields, json);
}

}  // namespace octavo::server
