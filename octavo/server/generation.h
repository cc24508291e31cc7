// One request for text on its way through the engine: takes the engine's events on the network's thread and writes the
// answer of OpenAI's API, whole or as a stream. One object per exchange; it lives as long as the engine or the client
// still has something to say.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "octavo/server/generation_request.h"
#include "octavo/server/http.h"
#include "octavo/server/json_writer.h"
#include "octavo/server/metrics.h"
#include "octavo/text/stream_decoder.h"

namespace octavo::server {

// "chatcmpl-" and 24 random letters.
std::string RandomName(std::string_view prefix);

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // All of them must outlive the generation, but for the exchange, which it shares.
  Generation(const ModelContext& context, Metrics& metrics, std::shared_ptr<Exchange> exchange,
             GenerationRequest request);

  // Hands every prompt to the engine and begins the answer. Throws what Submit throws; nothing runs on then.
  void Begin();

 private:
  struct Choice {
    std::unique_ptr<OutputParser> parser;
    std::string text, reasoning;
    std::vector<ToolCall> calls;
    std::vector<int32_t> tokens;
    std::vector<engine::TokenLogprob> logprobs, prompt;
    std::optional<engine::Finish> finish;
    // With logprobs of completions: characters of the answer's text before the next token, and what counts them.
    size_t text_offset = 0;
    std::optional<text::StreamDecoder> decoder;
    bool first = true;
    std::chrono::steady_clock::time_point last_event;
  };
  using Item = std::pair<size_t, std::variant<engine::Event, engine::Outcome>>;

  void Submit();
  void Push(size_t prompt, std::variant<engine::Event, engine::Outcome> what);
  void Drain();  // network thread: what the engine said since
  void OnEvent(size_t prompt, engine::Event&& event);
  void OnOutcome(const engine::Outcome& outcome);
  void OnClosed();
  void Fail(const engine::Event& event);
  void CancelAll();
  void SendWhole();

  void Stream(size_t index, const OutputDelta& delta, const engine::Event& event);
  void StreamFinish(size_t index);
  void StreamEnd();
  void WriteEvent(std::string json);
  std::string ReasonOf(const Choice& choice) const;

  JsonWriter StartObject(std::string_view object) const;
  void WriteUsage(JsonWriter& json) const;
  void WriteMessage(JsonWriter& json, const Choice& choice, size_t index) const;
  void WriteToolCalls(JsonWriter& json, const std::vector<ToolCall>& calls, size_t index, size_t first,
                      bool with_index) const;
  void WriteChatLogprobs(JsonWriter& json, const std::vector<engine::TokenLogprob>& logprobs) const;
  void WriteTextLogprobs(JsonWriter& json, size_t index, const std::vector<engine::TokenLogprob>& prompt,
                         const std::vector<engine::TokenLogprob>& logprobs);
  size_t PromptOf(size_t index) const { return index / static_cast<size_t>(request_.base.samples); }

  const ModelContext& context_;
  Metrics& metrics_;
  const std::shared_ptr<Exchange> exchange_;
  GenerationRequest request_;
  const std::string id_;
  const int64_t created_;
  const std::chrono::steady_clock::time_point start_;
  std::vector<engine::RequestId> submitted_;

  // Between the engine's thread and the network's.
  std::mutex mutex_;
  std::vector<Item> said_;
  bool posted_ = false;

  // Network thread.
  std::vector<Choice> choices_;
  engine::Usage usage_;
  size_t left_ = 0;  // prompts without an outcome
  bool ended_ = false, failed_ = false;
  bool quiet_ = true;  // nothing was written since the last ping
};

}  // namespace octavo::server
