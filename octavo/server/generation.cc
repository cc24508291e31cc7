#include "octavo/server/generation.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <random>

#include "octavo/engine/output_text.h"
#include "octavo/server/api_error.h"
#include "octavo/text/unicode.h"

namespace octavo::server {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

std::string RandomName(std::string_view prefix) {
  static constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::random_device device;
  std::string name(prefix);
  for (int i = 0; i < 24; ++i) name += kLetters[device() % kLetters.size()];
  return name;
}

Generation::Generation(const ModelContext& context, Metrics& metrics, std::shared_ptr<Exchange> exchange,
                       GenerationRequest request)
    : context_(context),
      metrics_(metrics),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      id_(RandomName(request_.chat ? "chatcmpl-" : "cmpl-")),
      created_(std::time(nullptr)),
      start_(Clock::now()) {
  choices_.resize(request_.prompts.size() * static_cast<size_t>(request_.base.samples));
  for (Choice& choice : choices_) {
    choice.last_event = start_;
    if (request_.chat) choice.parser = std::make_unique<OutputParser>(request_.form);
  }
  for (size_t i = 0; request_.logprobs && !request_.chat && i < choices_.size(); ++i) {
    const size_t prompt = PromptOf(i);
    choices_[i].decoder = engine::ContinueText(context_.tokenizer(), request_.prompts[prompt]);
    if (request_.echo) choices_[i].text_offset = text::CountChars(request_.echoed[prompt].text);
  }
  left_ = request_.prompts.size();
}

void Generation::Begin() {
  {
    const std::lock_guard lock(mutex_);
    posted_ = true;  // what the engine says waits until the answer has begun
  }
  Submit();
  const auto self = shared_from_this();
  exchange_->OnClosed([self] { self->OnClosed(); });
  if (request_.stream) {
    Headers headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    if (!request_.ignored.empty()) {
      headers.emplace_back("x-octavo-ignored", IgnoredHeader(request_.ignored));
    }
    exchange_->Start({.content_type = "text/event-stream", .headers = std::move(headers)});
    exchange_->Every(context_.options().ping_seconds, [self] {
      if (self->quiet_ && !self->ended_) self->exchange_->Write(": ping\n\n");
      self->quiet_ = true;
    });
  }
  exchange_->Post([self] { self->Drain(); });
}

void Generation::Submit() {
  const auto self = shared_from_this();
  std::vector<engine::Submission> all;
  for (size_t prompt = 0; prompt < request_.prompts.size(); ++prompt) {
    engine::Submission& one = all.emplace_back();
    one.request = request_.base;
    one.request.prompt = request_.prompts[prompt];
    one.listener = {.on_event = [self, prompt](engine::Event&& event) { self->Push(prompt, std::move(event)); },
                    .on_done = [self, prompt](const engine::Outcome& outcome) { self->Push(prompt, outcome); }};
  }
  submitted_ = context_.service().SubmitAll(std::move(all));
}

// On the engine's thread.
void Generation::Push(size_t prompt, std::variant<engine::Event, engine::Outcome> what) {
  {
    const std::lock_guard lock(mutex_);
    said_.emplace_back(prompt, std::move(what));
    if (posted_) return;
    posted_ = true;
  }
  exchange_->Post([self = shared_from_this()] { self->Drain(); });
}

void Generation::Drain() {
  std::vector<Item> said;
  {
    const std::lock_guard lock(mutex_);
    said.swap(said_);
    posted_ = false;
  }
  for (Item& item : said) {
    if (auto* event = std::get_if<engine::Event>(&item.second)) {
      if (!ended_) OnEvent(item.first, std::move(*event));
    } else {
      OnOutcome(std::get<engine::Outcome>(item.second));
    }
  }
}

void Generation::CancelAll() {
  for (const engine::RequestId id : submitted_) context_.service().Cancel(id);
}

void Generation::OnClosed() {
  ended_ = true;
  CancelAll();
}

void Generation::OnEvent(size_t prompt, engine::Event&& event) {
  const size_t index = prompt * static_cast<size_t>(request_.base.samples) + static_cast<size_t>(event.sample);
  Choice& choice = choices_[index];
  if (event.finish == engine::Finish::kError || event.finish == engine::Finish::kCancelled) return Fail(event);
  if (!event.tokens.empty()) {
    const auto now = Clock::now();
    const double gap = std::chrono::duration<double>(now - choice.last_event).count();
    if (choice.tokens.empty()) {
      metrics_.FirstToken(gap);
    } else {
      metrics_.TokenGap(gap / static_cast<double>(event.tokens.size()));
    }
    choice.last_event = now;
  }
  choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
  OutputDelta delta;
  if (choice.parser != nullptr) {
    delta = choice.parser->Push(event.text, event.tokens);
    if (event.finish) {
      OutputDelta rest = choice.parser->Finish();
      delta.content += rest.content;
      delta.reasoning += rest.reasoning;
      std::move(rest.calls.begin(), rest.calls.end(), std::back_inserter(delta.calls));
    }
  } else {
    delta.content = std::move(event.text);
  }
  if (event.finish) choice.finish = event.finish;
  if (request_.stream) {
    Stream(index, delta, event);
    JoinCalls(choice.calls, std::move(delta.calls));
    if (event.finish) StreamFinish(index);
    return;
  }
  choice.text += delta.content;
  choice.reasoning += delta.reasoning;
  JoinCalls(choice.calls, std::move(delta.calls));
  std::move(event.logprobs.begin(), event.logprobs.end(), std::back_inserter(choice.logprobs));
  std::move(event.prompt.begin(), event.prompt.end(), std::back_inserter(choice.prompt));
}

void Generation::OnOutcome(const engine::Outcome& outcome) {
  usage_.prompt_tokens += outcome.usage.prompt_tokens;
  usage_.cached_tokens += outcome.usage.cached_tokens;
  usage_.completion_tokens += outcome.usage.completion_tokens;
  usage_.queue_seconds = std::max(usage_.queue_seconds, outcome.usage.queue_seconds);
  usage_.prefill_seconds += outcome.usage.prefill_seconds;
  usage_.decode_seconds = std::max(usage_.decode_seconds, outcome.usage.decode_seconds);
  if (--left_ > 0) return;
  if (ended_) return metrics_.Finished(failed_ ? "error" : "cancelled", usage_, SecondsSince(start_));
  ended_ = true;
  metrics_.Finished(ReasonOf(choices_[0]), usage_, SecondsSince(start_));
  if (request_.stream) {
    StreamEnd();
  } else {
    SendWhole();
  }
}

// An engine fault, or a server that stops: the rest of the request goes with it.
void Generation::Fail(const engine::Event& event) {
  ended_ = true;
  CancelAll();
  const bool stopping = event.finish == engine::Finish::kCancelled;
  failed_ = !stopping;
  const int status = stopping ? 503 : 500;
  const std::string code = stopping ? "draining" : event.error_code;
  const std::string message = stopping ? "the server stops; the request was cut" : event.error;
  if (request_.stream) {
    WriteEvent(ErrorJson(status, code, "", message));
    exchange_->Finish();
  } else {
    exchange_->Send(stopping ? WaitResponse(status, code, message, 5) : ErrorResponse(status, code, "", message));
  }
}

std::string Generation::ReasonOf(const Choice& choice) const {
  if (choice.finish == engine::Finish::kLength) return "length";
  return choice.calls.empty() ? "stop" : "tool_calls";
}

}  // namespace octavo::server
