// Chat templates: a conversation in, the text a model expects out, with who wrote each piece. Same text and same errors
// as Hugging Face transformers (jinja2's sandbox with trim_blocks, lstrip_blocks, loopcontrols and {% generation %}).
// Used by the trainer's data, the engine and the server. Does not tokenize: the tokenizer takes the spans and looks for
// special tokens in template pieces only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/template_error.h"
#include "octavo/text/template_json.h"
#include "octavo/text/template_options.h"
#include "octavo/text/template_value.h"

namespace octavo::text {

namespace jinja {
struct Program;
}

struct TextPiece;  // tokenizer.h

using TemplateValue = jinja::Value;
using TemplateVariables = std::map<std::string, TemplateValue, std::less<>>;

enum class Origin : uint8_t { kTemplate, kUser };

struct OriginSpan {
  size_t begin, end;  // bytes of Rendered::text
  Origin origin;
  bool operator==(const OriginSpan&) const = default;
};

struct ByteRange {
  size_t begin, end;
  bool operator==(const ByteRange&) const = default;
};

struct Rendered {
  std::string text;
  std::vector<OriginSpan> spans;     // ascending, without gaps; neighbours differ
  std::vector<ByteRange> generated;  // what {% generation %} blocks made: the assistant's part of a training example

  // The spans as the tokenizer takes them: template text is trusted to hold special tokens. They refer to `text`.
  std::vector<TextPiece> Pieces() const;
};

struct ChatInputs {
  // Lists of objects, mostly from jinja::ParseJson. Their text counts as the user's, except roles that the fixed set
  // (user, assistant, system, ...) knows: some templates build '<|' + role + '|>'.
  TemplateValue messages;
  TemplateValue tools = TemplateValue::None();
  TemplateValue documents = TemplateValue::None();
  bool add_generation_prompt = false;
  // The field of the last message that the model is to continue, mostly "content"; empty: none.
  std::string continue_field;
  std::map<std::string, std::string> special_tokens;  // bos_token, eos_token, ...: template text
  TemplateVariables variables;                        // enable_thinking, ...; may not replace any of the above
};

class ChatTemplate {
 public:
  // Throws TemplateError that names line and construct.
  static ChatTemplate Parse(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // Throws TemplateError: the template refuses the conversation, is broken, or passes a limit. Safe to call from any
  // number of threads.
  Rendered Render(const ChatInputs& inputs, const RenderOptions& options = {}) const;
  // With bare variables, for templates that are not about conversations.
  Rendered RenderVariables(const TemplateVariables& variables, const RenderOptions& options = {}) const;

  const std::string& source() const { return source_; }
  // Names that the template reads from outside, sorted.
  const std::vector<std::string>& variables() const;
  bool has_generation() const;

 private:
  ChatTemplate();

  std::string source_;
  std::unique_ptr<const jinja::Program> program_;
};

}  // namespace octavo::text
