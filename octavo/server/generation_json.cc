// The JSON of answers: the whole object at the end, or chunk by chunk.

#include "octavo/server/generation.h"
#include "octavo/text/unicode.h"

namespace octavo::server {

JsonWriter Generation::StartObject(std::string_view object) const {
  JsonWriter json;
  json.BeginObject().Field("id", id_).Field("object", object).Field("created", created_);
  json.Field("model", request_.model.id).Field("system_fingerprint", request_.model.fingerprint);
  return json;
}

void Generation::WriteUsage(JsonWriter& json) const {
  json.Key("usage").BeginObject();
  json.Field("prompt_tokens", usage_.prompt_tokens).Field("completion_tokens", usage_.completion_tokens);
  json.Field("total_tokens", usage_.prompt_tokens + usage_.completion_tokens);
  json.Key("prompt_tokens_details").BeginObject().Field("cached_tokens", usage_.cached_tokens).EndObject();
  json.EndObject();
}

void Generation::WriteToolCalls(JsonWriter& json, const std::vector<ToolCall>& calls, size_t index, size_t first,
                                bool with_index) const {
  json.Key("tool_calls").BeginArray();
  for (size_t i = 0; i < calls.size(); ++i) {
    json.BeginObject();
    if (with_index) json.Field("index", static_cast<int64_t>(first + i));
    json.Field("id", fmt::format("call_{}_{}_{}", id_.substr(id_.find('-') + 1), index, first + i));
    json.Field("type", "function").Key("function").BeginObject();
    json.Field("name", calls[i].name).Field("arguments", calls[i].arguments).EndObject().EndObject();
  }
  json.EndArray();
}

void Generation::WriteChatLogprobs(JsonWriter& json, const std::vector<engine::TokenLogprob>& logprobs) const {
  const auto write = [&](int32_t token, float logprob) {
    const std::string bytes = context_.TokenBytes(token);
    json.Field("token", bytes).Field("logprob", static_cast<double>(logprob)).Key("bytes").BeginArray();
    for (const char byte : bytes) json.Int(static_cast<unsigned char>(byte));
    json.EndArray();
  };
  json.Key("logprobs").BeginObject().Key("content").BeginArray();
  for (const engine::TokenLogprob& one : logprobs) {
    json.BeginObject();
    write(one.token, one.logprob);
    json.Key("top_logprobs").BeginArray();
    for (const auto& other : one.top) {
      json.BeginObject();
      write(other.first, other.second);
      json.EndObject();
    }
    json.EndArray().EndObject();
  }
  json.EndArray().Key("refusal").Null().EndObject();
}

void Generation::WriteTextLogprobs(JsonWriter& json, size_t index, const std::vector<engine::TokenLogprob>& prompt,
                                   const std::vector<engine::TokenLogprob>& logprobs) {
  Choice& choice = choices_[index];
  std::vector<std::string> names;
  JsonWriter values, tops, offsets;
  values.BeginArray();
  tops.BeginArray();
  offsets.BeginArray();
  const auto write = [&](const engine::TokenLogprob& one, bool known) {
    names.push_back(context_.TokenBytes(one.token));
    if (!known) {
      values.Null();
      tops.Null();
      return;
    }
    values.Number(static_cast<double>(one.logprob));
    tops.BeginObject();
    std::set<std::string> seen;  // two tokens may have the same text; an object has each name once
    for (const auto& other : one.top) {
      const std::string name = text::ReplaceInvalidUtf8(context_.TokenBytes(other.first));
      if (seen.insert(name).second) tops.Field(name, static_cast<double>(other.second));
    }
    tops.EndObject();
  };
  for (size_t i = 0; i < prompt.size(); ++i) {
    write(prompt[i], i > 0);
    offsets.Int(request_.echoed[PromptOf(index)].offsets[i]);
  }
  for (const engine::TokenLogprob& one : logprobs) {
    write(one, true);
    // A part of a character begins where the character does: the decoder gives it when it is whole.
    offsets.Int(static_cast<int64_t>(choice.text_offset));
    choice.text_offset += text::CountChars(choice.decoder->Push(one.token));
  }
  json.Key("logprobs").BeginObject().Key("tokens").BeginArray();
  for (const std::string& name : names) json.String(name);
  json.EndArray();
  json.Key("token_logprobs").Raw(values.EndArray().text());
  json.Key("top_logprobs").Raw(tops.EndArray().text());
  json.Key("text_offset").Raw(offsets.EndArray().text()).EndObject();
}

void Generation::WriteMessage(JsonWriter& json, const Choice& choice, size_t index) const {
  json.Key("message").BeginObject().Field("role", "assistant").Key("content");
  if (choice.text.empty() && !choice.calls.empty()) {
    json.Null();
  } else {
    json.String(choice.text);
  }
  json.Key("refusal").Null();
  if (!choice.reasoning.empty()) json.Field("reasoning_content", choice.reasoning);
  if (!choice.calls.empty()) WriteToolCalls(json, choice.calls, index, 0, false);
  json.EndObject();
}

void Generation::SendWhole() {
  JsonWriter json = StartObject(request_.chat ? "chat.completion" : "text_completion");
  const auto ids = [&](std::string_view key, const std::vector<int32_t>& tokens) {
    json.Key(key).BeginArray();
    for (const int32_t id : tokens) json.Int(id);
    json.EndArray();
  };
  json.Key("choices").BeginArray();
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    const size_t prompt = PromptOf(i);
    json.BeginObject().Field("index", static_cast<int64_t>(i));
    if (request_.chat) {
      WriteMessage(json, choice, i);
    } else {
      json.Field("text", request_.echo ? request_.echoed[prompt].text + choice.text : choice.text);
    }
    if (!request_.logprobs) {
      json.Key("logprobs").Null();
    } else if (request_.chat) {
      WriteChatLogprobs(json, choice.logprobs);
    } else {
      // The engine scores a prompt once for all its samples.
      WriteTextLogprobs(json, i, choices_[prompt * static_cast<size_t>(request_.base.samples)].prompt, choice.logprobs);
    }
    json.Field("finish_reason", ReasonOf(choice));
    if (request_.return_token_ids) {
      ids("token_ids", choice.tokens);
      if (!request_.chat) ids("prompt_token_ids", request_.prompts[prompt]);
    }
    json.EndObject();
  }
  json.EndArray();
  WriteUsage(json);
  if (request_.return_token_ids && request_.chat) ids("prompt_token_ids", request_.prompts[0]);
  json.EndObject();
  HttpResponse response{.body = json.Take() + "\n"};
  if (!request_.ignored.empty()) {
    response.headers.emplace_back("x-octavo-ignored", IgnoredHeader(request_.ignored));
  }
  exchange_->Send(std::move(response));
}

void Generation::WriteEvent(std::string json) {
  quiet_ = false;
  exchange_->Write("data: " + json + "\n\n");
}

void Generation::Stream(size_t index, const OutputDelta& delta, const engine::Event& event) {
  Choice& choice = choices_[index];
  const auto chunk = [&](auto&& write_delta, bool with_logprobs) {
    JsonWriter json = StartObject(request_.chat ? "chat.completion.chunk" : "text_completion");
    json.Key("choices").BeginArray().BeginObject().Field("index", static_cast<int64_t>(index));
    write_delta(json);
    if (!with_logprobs || !request_.logprobs) {
      json.Key("logprobs").Null();
    } else if (request_.chat) {
      WriteChatLogprobs(json, event.logprobs);
    } else {
      WriteTextLogprobs(json, index, event.prompt, event.logprobs);
    }
    json.Key("finish_reason").Null();
    if (request_.return_token_ids && with_logprobs) {
      json.Key("token_ids").BeginArray();
      for (const int32_t id : event.tokens) json.Int(id);
      json.EndArray();
    }
    json.EndObject().EndArray();
    if (request_.include_usage) json.Key("usage").Null();
    json.EndObject();
    WriteEvent(json.Take());
  };
  if (choice.first) {
    choice.first = false;
    if (request_.chat) {
      chunk(
          [](JsonWriter& json) {
            json.Key("delta")
                .BeginObject()
                .Field("role", "assistant")
                .Field("content", "")
                .Key("refusal")
                .Null()
                .EndObject();
          },
          false);
    } else if (request_.echo) {
      chunk([&](JsonWriter& json) { json.Field("text", request_.echoed[PromptOf(index)].text); }, false);
    }
  }
  const bool has_logprobs = request_.logprobs && (!event.logprobs.empty() || !event.prompt.empty());
  const bool has_ids = request_.return_token_ids && !event.tokens.empty();
  if (!request_.chat) {
    if (!delta.content.empty() || has_logprobs || has_ids) {
      chunk([&](JsonWriter& json) { json.Field("text", delta.content); }, true);
    }
    return;
  }
  if (!delta.reasoning.empty()) {
    chunk(
        [&](JsonWriter& json) {
          json.Key("delta").BeginObject().Field("reasoning_content", delta.reasoning).EndObject();
        },
        delta.content.empty());
  }
  if (!delta.content.empty() || (delta.reasoning.empty() && (has_logprobs || has_ids))) {
    chunk([&](JsonWriter& json) { json.Key("delta").BeginObject().Field("content", delta.content).EndObject(); }, true);
  }
  // Pieces go out as they come: a name with its id, then arguments.
  size_t begun = choice.calls.size();
  for (const ToolCall& piece : delta.calls) {
    if (!piece.name.empty()) {
      chunk(
          [&](JsonWriter& json) {
            json.Key("delta").BeginObject();
            WriteToolCalls(json, {{.name = piece.name, .arguments = ""}}, index, begun, true);
            json.EndObject();
          },
          false);
      ++begun;
    }
    if (piece.arguments.empty()) continue;
    chunk(
        [&](JsonWriter& json) {
          json.Key("delta").BeginObject().Key("tool_calls").BeginArray().BeginObject();
          json.Field("index", static_cast<int64_t>(begun - 1)).Key("function").BeginObject();
          json.Field("arguments", piece.arguments).EndObject().EndObject().EndArray().EndObject();
        },
        false);
  }
}

void Generation::StreamFinish(size_t index) {
  JsonWriter json = StartObject(request_.chat ? "chat.completion.chunk" : "text_completion");
  json.Key("choices").BeginArray().BeginObject().Field("index", static_cast<int64_t>(index));
  if (request_.chat) {
    json.Key("delta").BeginObject().EndObject();
  } else {
    json.Field("text", "");
  }
  json.Key("logprobs").Null().Field("finish_reason", ReasonOf(choices_[index])).EndObject().EndArray();
  if (request_.include_usage) json.Key("usage").Null();
  json.EndObject();
  WriteEvent(json.Take());
}

void Generation::StreamEnd() {
  if (request_.include_usage) {
    JsonWriter json = StartObject(request_.chat ? "chat.completion.chunk" : "text_completion");
    json.Key("choices").BeginArray().EndArray();
    WriteUsage(json);
    json.EndObject();
    WriteEvent(json.Take());
  }
  WriteEvent("[DONE]");
  exchange_->Finish();
}

}  // namespace octavo::server
