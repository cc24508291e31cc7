#include "octavo/server/output_parser.h"

#include <algorithm>

namespace octavo::server {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>";
constexpr std::string_view kCall = "<tool_call>", kCallEnd = "</tool_call>", kMistral = "[TOOL_CALLS]";

// How many bytes at the end of `text` could be the beginning of `tag`.
size_t HeldBack(std::string_view text, std::string_view tag) {
  for (size_t count = std::min(text.size(), tag.size() - 1); count > 0; --count) {
    if (text.substr(text.size() - count) == tag.substr(0, count)) return count;
  }
  return 0;
}

size_t TrailingSpace(std::string_view text) {
  const size_t last = text.find_last_not_of(kSpace);
  return last == std::string_view::npos ? text.size() : text.size() - last - 1;
}

void DropLeadingSpace(std::string& text) { text.erase(0, std::min(text.find_first_not_of(kSpace), text.size())); }

}  // namespace

OutputParser::OutputParser(OutputForm form) : form_(std::move(form)) {
  if (form_.only_call) BeginCalls();
  if (!form_.only_call && form_.reasoning_open) {
    stage_ = Stage::kReasoning;
    skip_space_ = true;
  }
}

OutputDelta OutputParser::Push(std::string_view text, std::span<const int32_t> tokens) {
  OutputDelta out;
  if (form_.tool_token && std::find(tokens.begin(), tokens.end(), *form_.tool_token) != tokens.end()) {
    if (stage_ == Stage::kCall) Run(out, true);  // the call before is over
    out.content += pending_;
    pending_.clear();
    BeginCalls();
  }
  pending_ += text;
  Run(out, false);
  return out;
}

OutputDelta OutputParser::Finish() {
  OutputDelta out;
  Run(out, true);
  return out;
}

void OutputParser::Run(OutputDelta& out, bool last) {
  bool more = true;
  while (more) {
    switch (stage_) {
      case Stage::kStart:
        more = RunStart(last);
        break;
      case Stage::kReasoning:
        more = RunReasoning(out, last);
        break;
      case Stage::kContent:
        more = RunContent(out, last);
        break;
      case Stage::kCall:
        more = RunCall(out, last);
        break;
    }
  }
}

bool OutputParser::RunStart(bool last) {
  if (form_.reasoning) {
    std::string_view text = pending_;
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (text.starts_with(kThink)) {
      pending_ = std::string(text.substr(kThink.size()));
      stage_ = Stage::kReasoning;
      skip_space_ = true;
      return true;
    }
    if (!last && kThink.starts_with(text)) return false;
  }
  stage_ = Stage::kContent;
  return true;
}

bool OutputParser::RunReasoning(OutputDelta& out, bool last) {
  if (skip_space_) DropLeadingSpace(pending_);
  if (pending_.empty()) return false;
  skip_space_ = false;
  const size_t end = pending_.find(kThinkEnd);
  if (end != std::string::npos) {
    const std::string_view before = std::string_view(pending_).substr(0, end);
    out.reasoning += before.substr(0, before.size() - TrailingSpace(before));
    pending_.erase(0, end + kThinkEnd.size());
    stage_ = Stage::kContent;
    skip_space_ = true;
    return true;
  }
  size_t held = last ? 0 : HeldBack(pending_, kThinkEnd);
  const std::string_view before = std::string_view(pending_).substr(0, pending_.size() - held);
  if (!last) held += TrailingSpace(before);
  out.reasoning += pending_.substr(0, pending_.size() - held);
  pending_.erase(0, pending_.size() - held);
  return false;
}

bool OutputParser::RunContent(OutputDelta& out, bool last) {
  if (skip_space_) DropLeadingSpace(pending_);
  if (pending_.empty()) return false;
  skip_space_ = false;
  if (form_.tools == ToolForm::kPlainJson && !content_began_) {
    const size_t first = pending_.find_first_not_of(kSpace);
    if (first == std::string::npos && !last) return false;
    content_began_ = true;
    if (first != std::string::npos && pending_[first] == '{') {
      BeginCalls();
      return true;
    }
  }
  const std::string_view tag = form_.tools == ToolForm::kTagged    ? kCall
                               : form_.tools == ToolForm::kMistral ? kMistral
                                                                   : std::string_view();
  size_t held = 0;
  if (!tag.empty()) {
    const size_t at = pending_.find(tag);
    if (at != std::string::npos) {
      const std::string_view before = std::string_view(pending_).substr(0, at);
      out.content += before.substr(0, before.size() - TrailingSpace(before));
      pending_.erase(0, at + tag.size());
      BeginCalls();
      return true;
    }
    held = last ? 0 : HeldBack(pending_, tag);
    // Models put line ends before a call; they belong to nobody.
    if (!last) held += TrailingSpace(std::string_view(pending_).substr(0, pending_.size() - held));
  }
  out.content += pending_.substr(0, pending_.size() - held);
  pending_.erase(0, pending_.size() - held);
  return false;
}

void OutputParser::BeginCalls() {
  stage_ = Stage::kCall;
  // Bare JSON may be an answer that only looks like a call.
  const bool plain = !form_.only_call && form_.tools == ToolForm::kPlainJson;
  calls_.emplace(CallStream::Options{.bare_names = !form_.only_call && form_.tools == ToolForm::kMistral,
                                     .any_value = form_.only_call,
                                     .names = plain ? &form_.names : nullptr});
}

void OutputParser::AddPieces(std::vector<ToolCall> pieces, OutputDelta& out) {
  for (ToolCall& piece : pieces) {
    if (!piece.name.empty()) {
      left_out_ = form_.one_call && called_;
      called_ = true;
    }
    if (!left_out_) out.calls.push_back(std::move(piece));
  }
}

bool OutputParser::AddWhole(std::optional<std::vector<ToolCall>> calls, OutputDelta& out) {
  if (!calls) return false;
  const bool known =
      std::all_of(calls->begin(), calls->end(), [&](const ToolCall& c) { return form_.names.contains(c.name); });
  if (form_.tools == ToolForm::kPlainJson && !form_.only_call && !known) return false;
  AddPieces(std::move(*calls), out);
  return true;
}

bool OutputParser::RunCall(OutputDelta& out, bool last) {
  if (!calls_) return RunWholeCall(out, last);
  std::vector<ToolCall> pieces;
  const CallStream::State state = calls_->Read(pending_, last, pieces);
  AddPieces(std::move(pieces), out);
  if (state == CallStream::State::kOpen) return false;
  if (state == CallStream::State::kOther) {
    calls_.reset();
    return true;
  }
  if (!form_.only_call && form_.tools == ToolForm::kTagged) {
    const size_t end = pending_.find(kCallEnd);
    if (end == std::string::npos && !last) return false;
    if (!kCallEnd.starts_with(pending_)) out.content += pending_.substr(0, end);
    pending_.erase(0, end == std::string::npos ? pending_.size() : end + kCallEnd.size());
  }
  stage_ = Stage::kContent;
  skip_space_ = true;
  return true;
}

bool OutputParser::RunWholeCall(OutputDelta& out, bool last) {
  if (!form_.only_call && form_.tools == ToolForm::kTagged) {
    const size_t end = pending_.find(kCallEnd);
    if (end == std::string::npos && !last) return false;
    const std::string inner = pending_.substr(0, end);
    if (!AddWhole(ParseCallJson(inner), out)) {
      out.content += std::string(kCall) + inner;
      if (end != std::string::npos) out.content += kCallEnd;
    }
    pending_.erase(0, end == std::string::npos ? pending_.size() : end + kCallEnd.size());
    stage_ = Stage::kContent;
    skip_space_ = true;
    return true;
  }
  if (!last) return false;
  const bool mistral = !form_.only_call && form_.tools == ToolForm::kMistral;
  if (!AddWhole(ParseCallJson(pending_), out)) {
    out.content += mistral ? std::string(kMistral) + pending_ : pending_;
  }
  pending_.clear();
  return false;
}

}  // namespace octavo::server
