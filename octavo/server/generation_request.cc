#include "octavo/server/generation_request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>

#include "octavo/engine/validate.h"
#include "octavo/server/api_error.h"
#include "octavo/text/stream_decoder.h"
#include "octavo/text/unicode.h"

namespace octavo::server {
namespace {

using text::jinja::Kind;

constexpr size_t kMostPrompts = 128;
constexpr size_t kMostBiases = 1024;

void ReadStop(Fields& fields, engine::Request& request) {
  const JsonValue* stop = fields.Find("stop");
  if (stop == nullptr) return;
  std::vector<JsonValue> items;
  if (stop->is_string()) {
    items.push_back(*stop);
  } else if (stop->is(Kind::kList)) {
    items = stop->items();
  } else {
    ThrowInvalid("stop", "expected a string or a list of strings");
  }
  if (items.size() > engine::kMaxStops) {
    ThrowInvalid("stop", fmt::format("{} strings, at most {} are taken", items.size(), engine::kMaxStops));
  }
  for (const JsonValue& item : items) {
    if (!item.is_string()) ThrowInvalid("stop", "expected a string or a list of strings");
    if (item.str().empty()) ThrowInvalid("stop", "a stop string is empty");
    if (item.str().size() > engine::kMaxStopBytes) {
      ThrowInvalid("stop", fmt::format("a stop string has {} bytes, at most {} are taken", item.str().size(),
                                       engine::kMaxStopBytes));
    }
    request.stop.emplace_back(item.str());
  }
}

void ReadLogitBias(Fields& fields, int64_t vocabulary, engine::Sampling& sampling) {
  const JsonValue* bias = fields.Find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is(Kind::kDict)) ThrowInvalid("logit_bias", "expected an object of token ids and numbers");
  if (bias->dict().size() > kMostBiases) {
    ThrowInvalid("logit_bias", fmt::format("{} tokens, at most {} are taken", bias->dict().size(), kMostBiases));
  }
  Fields values(*bias, "logit_bias");
  for (const auto& entry : bias->dict().entries()) {
    const std::string key(entry.first.str());
    int64_t id = -1;
    const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (problem != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocabulary) {
      ThrowInvalid("logit_bias", fmt::format("a token id is a whole number from 0 to {}", vocabulary - 1));
    }
    sampling.logit_bias.emplace_back(static_cast<int32_t>(id), values.Number(key, 0, -100, 100));
  }
}

uint64_t RandomSeed() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

void ReadSampling(Fields& fields, const ModelContext& context, GenerationRequest& request) {
  engine::Sampling& sampling = request.base.sampling;
  sampling = context.options().sampling;
  sampling.temperature = fields.Number("temperature", sampling.temperature, 0, 2);
  sampling.top_p = fields.Number("top_p", sampling.top_p, 0, 1);
  // Clients that mean "only the likeliest" send 0, which is no share of probability.
  if (sampling.top_p == 0) sampling.top_p = 1e-9;
  // Others write -1 for all.
  sampling.top_k = std::max<int64_t>(fields.Int("top_k", sampling.top_k, -1, INT32_MAX), 0);
  sampling.min_p = fields.Number("min_p", sampling.min_p, 0, 1);
  sampling.presence_penalty = fields.Number("presence_penalty", sampling.presence_penalty, -2, 2);
  sampling.frequency_penalty = fields.Number("frequency_penalty", sampling.frequency_penalty, -2, 2);
  sampling.repetition_penalty = fields.Number("repetition_penalty", sampling.repetition_penalty, 0.01, 1000);
  sampling.seed =
      fields.Has("seed") ? static_cast<uint64_t>(fields.Int("seed", 0, INT64_MIN, INT64_MAX)) : RandomSeed();
  ReadLogitBias(fields, request.model.vocabulary_size, sampling);
}

// Where each token begins in the text that the ids make; a part of a character begins where the character does.
EchoedPrompt EchoIds(const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  EchoedPrompt echoed;
  text::StreamDecoder decoder(tokenizer, {.skip_special = true, .skip_unknown_ids = true});
  int64_t characters = 0;
  for (const int32_t id : ids) {
    echoed.offsets.push_back(characters);
    const std::string piece = decoder.Push(id);
    characters += static_cast<int64_t>(text::CountChars(piece));
    echoed.text += piece;
  }
  echoed.text += decoder.Finish();
  return echoed;
}

EchoedPrompt EchoText(std::string_view text, const text::Encoding& encoding) {
  EchoedPrompt echoed{.text = std::string(text), .offsets = {}};
  int64_t characters = 0;  // tokens that were added to the text have no place in it
  for (const text::Span& span : encoding.chars) {
    characters = std::max<int64_t>(characters, span.begin);
    echoed.offsets.push_back(characters);
  }
  return echoed;
}

// One prompt: a text or token ids.
std::vector<int32_t> ReadPrompt(const JsonValue& value, const ModelContext& context, const text::EncodeOptions& options,
                                GenerationRequest& request) {
  const engine::ModelInfo& model = request.model;
  std::vector<int32_t> ids;
  if (value.is_string()) {
    context.RequireFits("prompt", value.str().size(), model.context_length);
    if (request.echo && request.logprobs) {
      text::Encoding encoding = context.tokenizer().EncodeWithOffsets(value.str(), options);
      request.echoed.push_back(EchoText(value.str(), encoding));
      ids = std::move(encoding.ids);
    } else {
      ids = context.tokenizer().Encode(value.str(), options);
      if (request.echo) request.echoed.push_back({.text = std::string(value.str()), .offsets = {}});
    }
    // Some tokenizers put an end behind every text; a prompt is to be continued.
    const std::optional<int32_t> end = context.tokenizer().roles().eos;
    if (options.add_special && end && ids.size() > 1 && ids.back() == *end &&
        !value.str().ends_with(context.tokenizer().Token(*end).value_or(" "))) {
      ids.pop_back();
    }
    return ids;
  }
  for (const JsonValue& item : value.items()) {
    const std::optional<int64_t> id = AsInt(item);
    if (!id || *id < 0 || *id >= model.vocabulary_size) {
      ThrowInvalid("prompt", fmt::format("a token id is a whole number from 0 to {}", model.vocabulary_size - 1));
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  if (request.echo) request.echoed.push_back(EchoIds(context.tokenizer(), ids));
  return ids;
}

void ReadPrompts(Fields& fields, const ModelContext& context, GenerationRequest& request) {
  const JsonValue* prompt = fields.Find("prompt");
  const text::EncodeOptions options{.add_special = fields.Bool("add_special_tokens", true),
                                    .parse_special = fields.Bool("parse_special", true)};
  constexpr std::string_view kForms =
      "expected a string, a list of strings, a list of token ids or a list of such lists";
  if (prompt == nullptr) ThrowInvalid("prompt", kForms);
  const bool list = prompt->is(Kind::kList);
  if (!list && !prompt->is_string()) ThrowInvalid("prompt", kForms);
  if (list && prompt->items().empty()) ThrowInvalid("prompt", "the list is empty");
  if (!list || prompt->items()[0].is_integral()) {
    request.prompts.push_back(ReadPrompt(*prompt, context, options, request));
  } else {
    if (prompt->items().size() > kMostPrompts) {
      ThrowInvalid("prompt", fmt::format("{} prompts, at most {} are taken", prompt->items().size(), kMostPrompts));
    }
    for (const JsonValue& item : prompt->items()) {
      if (!item.is_string() && !item.is(Kind::kList)) ThrowInvalid("prompt", kForms);
      request.prompts.push_back(ReadPrompt(item, context, options, request));
    }
  }
  for (const std::vector<int32_t>& ids : request.prompts) {
    if (ids.empty()) ThrowInvalid("prompt", "a prompt is empty");
  }
}

}  // namespace

void ReadSharedFields(Fields& fields, const ModelContext& context, GenerationRequest& request) {
  request.model = context.Find(fields.Text("model").value_or(""));
  if (!request.model.parent.empty()) request.base.adapter = request.model.id;
  ReadSampling(fields, context, request);
  ReadStop(fields, request.base);
  request.base.stop_ids = fields.Ids("stop_token_ids", request.model.vocabulary_size - 1, 64);
  request.base.samples = static_cast<int>(fields.Int("n", 1, 1, engine::kMaxSamples));
  request.base.min_new_tokens = fields.Int("min_tokens", 0, 0, request.model.context_length);
  request.base.ignore_eos = fields.Bool("ignore_eos", false);
  request.return_token_ids = fields.Bool("return_token_ids", false);
  request.stream = fields.Bool("stream", false);
  if (const JsonValue* options = fields.Find("stream_options")) {
    if (!request.stream) ThrowInvalid("stream_options", "only with stream=true");
    Fields inner(*options, "stream_options");
    request.include_usage = inner.Bool("include_usage", false);
    for (std::string& name : inner.Unread()) request.ignored.push_back(std::move(name));
  }
}

void ReadResponseFormat(Fields& fields, const ModelContext& context, GenerationRequest& request) {
  for (const char* other : {"grammar", "json_schema", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
                            "structured_outputs", "functions", "function_call"}) {
    if (fields.Has(other)) ThrowUnsupported(other, "not supported; use response_format or tools");
  }
  const JsonValue* value = fields.Find("response_format");
  if (value == nullptr) return;
  Fields format(*value, "response_format");
  const std::string type = format.Text("type").value_or("");
  if (type == "text") return;
  if (type == "json_object") {
    const JsonValue* schema = format.Find("schema");  // the form of llama.cpp
    request.base.constraint = schema == nullptr ? context.AnyObject("response_format")
                                                : context.Constraint("response_format.schema", ToJsonText(*schema));
  } else if (type == "json_schema") {
    const JsonValue* outer = format.Find("json_schema");
    if (outer == nullptr) ThrowInvalid("response_format.json_schema", "is missing");
    Fields inner(*outer, "response_format.json_schema");
    inner.Text("name");
    inner.Text("description");
    inner.Bool("strict", true);
    const JsonValue* schema = inner.Find("schema");
    if (schema == nullptr) ThrowInvalid("response_format.json_schema.schema", "is missing");
    request.base.constraint = context.Constraint("response_format.json_schema.schema", ToJsonText(*schema));
    for (std::string& name : inner.Unread()) request.ignored.push_back(std::move(name));
  } else {
    ThrowUnsupported("response_format.type", "expected text, json_object or json_schema");
  }
  for (std::string& name : format.Unread()) request.ignored.push_back(std::move(name));
}

void FinishFields(const Fields& fields, const ModelContext& context, GenerationRequest& request) {
  for (std::string& name : fields.Unread()) request.ignored.push_back(std::move(name));
  // Where the form is complete only the end may follow: going on would break it, and stopping the wish.
  if (request.base.constraint && (request.base.ignore_eos || request.base.min_new_tokens > 0)) {
    ThrowUnsupported(request.base.ignore_eos ? "ignore_eos" : "min_tokens",
                     "not together with response_format or a required tool, which say where the answer ends");
  }
  RefuseIgnored(request.ignored, context);
}

void RefuseIgnored(const std::vector<std::string>& names, const ModelContext& context) {
  if (!context.options().strict_request || names.empty()) return;
  throw ApiError(400, "unknown_field", names[0],
                 fmt::format("unknown field '{}' (the server runs with strict_request=true)", names[0]));
}

std::string IgnoredHeader(const std::vector<std::string>& names) {
  constexpr size_t kMostNames = 16, kMostCharacters = 64;
  std::string value;
  for (size_t i = 0; i < std::min(names.size(), kMostNames); ++i) {
    if (i > 0) value += ", ";
    for (const char c : names[i].substr(0, kMostCharacters)) value += c > 0x20 && c < 0x7F && c != ',' ? c : '?';
  }
  if (names.size() > kMostNames) value += fmt::format(", and {} more", names.size() - kMostNames);
  return value;
}

GenerationRequest ReadCompletionRequest(const JsonValue& body, const ModelContext& context) {
  Fields fields(body);
  GenerationRequest request;
  ReadSharedFields(fields, context, request);
  ReadResponseFormat(fields, context, request);
  if (fields.Has("suffix")) ThrowUnsupported("suffix", "text before a given end is not supported");
  if (fields.Int("best_of", request.base.samples, 1, engine::kMaxSamples) != request.base.samples) {
    ThrowUnsupported("best_of", "only the value of n is supported");
  }
  request.echo = fields.Bool("echo", false);
  request.base.max_new_tokens = fields.Int("max_tokens", 16, request.echo ? 0 : 1, request.model.context_length);
  if (fields.Has("logprobs")) {
    const JsonValue* value = fields.Find("logprobs");
    if (!value->is(Kind::kBool) || value->boolean()) {
      request.base.top_logprobs =
          value->is(Kind::kBool) ? 0 : static_cast<int>(fields.Int("logprobs", 0, 0, engine::kMaxTopLogprobs));
      request.logprobs = true;
      request.base.prompt_logprobs = request.echo;
    }
  }
  ReadPrompts(fields, context, request);
  FinishFields(fields, context, request);
  return request;
}

}  // namespace octavo::server
