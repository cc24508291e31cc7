#include "octavo/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <time.h>

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/text/regex_syntax.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

constexpr size_t kMaxPattern = 64 * 1024;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kJitStackMax = 8 * 1024 * 1024;
// A search may start at this many places before the budget is looked at again.
constexpr size_t kStartsPerCall = 1024;

double Seconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct RegexScratch::Parts {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  uint32_t match_limit = 1'000'000;
  double allowed_seconds = 1.15;
  double wall_start = 0;
  double processor_start = 0;

  Parts() {
    data = pcre2_match_data_create(1, nullptr);
    context = pcre2_match_context_create(nullptr);
    stack = pcre2_jit_stack_create(32 * 1024, kJitStackMax, nullptr);
    if (data == nullptr || context == nullptr) throw std::bad_alloc();
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_heap_limit(context, kHeapLimitKib);
  }
  ~Parts() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  // The coarse clock is cheap enough to ask at every call; processor time, which other programs cannot use up, decides.
  bool Expired() const {
    if (Seconds(CLOCK_MONOTONIC_COARSE) - wall_start <= allowed_seconds) return false;
    return Seconds(CLOCK_THREAD_CPUTIME_ID) - processor_start > allowed_seconds;
  }
};

RegexScratch::RegexScratch() = default;
RegexScratch::~RegexScratch() = default;
RegexScratch::RegexScratch(RegexScratch&&) noexcept = default;
RegexScratch& RegexScratch::operator=(RegexScratch&&) noexcept = default;

void RegexScratch::BeginRequest(size_t bytes) {
  if (parts_ == nullptr) parts_ = std::make_unique<Parts>();
  parts_->match_limit = static_cast<uint32_t>(std::clamp<uint64_t>(uint64_t{8} * bytes, 1'000'000, UINT32_MAX));
  parts_->allowed_seconds = 0.15 + 1e-6 * static_cast<double>(bytes);
  parts_->wall_start = Seconds(CLOCK_MONOTONIC_COARSE);
  parts_->processor_start = Seconds(CLOCK_THREAD_CPUTIME_ID);
  pcre2_set_match_limit(parts_->context, parts_->match_limit);
  pcre2_set_depth_limit(parts_->context, parts_->match_limit);
}

struct Regex::Code {
  pcre2_code* code = nullptr;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern) : pattern_(pattern), code_(std::make_unique<Code>()) {
  if (pattern.size() > kMaxPattern) {
    ThrowFile("regular expression of {} bytes: at most {} are accepted", pattern.size(), kMaxPattern);
  }
  if (!IsValidUtf8(pattern)) ThrowFile("regular expression is not valid UTF-8");
  const std::string translated = TranslateRegex(pattern);
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK | PCRE2_USE_OFFSET_LIMIT;
  int error = 0;
  PCRE2_SIZE where = 0;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options, &error,
                              &where, context.get());
  if (code_->code == nullptr) {
    throw Error(ErrorCode::kFile, fmt::format("regular expression does not compile: {}", ErrorText(error)),
                fmt::format("in the pattern {}", pattern.substr(0, 200)));
  }
  // Without JIT (another machine, or memory that may not be executed) the interpreter gives the same matches.
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);
}

Regex::~Regex() = default;

void Regex::FindAll(std::string_view text, RegexScratch& scratch, FunctionRef<void(size_t, size_t)> visit) const {
  if (scratch.parts_ == nullptr) scratch.BeginRequest(text.size());
  RegexScratch::Parts& parts = *scratch.parts_;
  const auto fail = [&](std::string_view why) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("regular expression of the tokenizer took too long on {} bytes of text ({})", text.size(), why),
        fmt::format("the pattern is {}", pattern_.substr(0, 200)));
  };
  size_t from = 0;
  size_t last_end = SIZE_MAX;
  while (from <= text.size()) {
    const size_t limit = std::min(from + kStartsPerCall, text.size());
    pcre2_set_offset_limit(parts.context, limit);
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int found = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, parts.data, parts.context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, parts.data,
                          parts.context);
    }
    if (parts.Expired()) fail(fmt::format("over {:.2f} s", parts.allowed_seconds));
    if (found == PCRE2_ERROR_NOMATCH) {
      if (limit == text.size()) return;
      from = limit + 1;
      while (from < text.size() && IsContinuation(text[from])) ++from;
      continue;
    }
    if (found < 0) fail(ErrorText(found));
    const size_t* ends = pcre2_get_ovector_pointer(parts.data);
    const size_t begin = std::min(ends[0], ends[1]);  // \K in a lookahead may turn them round
    const size_t end = std::max(ends[0], ends[1]);
    // No empty match right after another one, and none that \K moved back over text already given out.
    if ((begin == end && end == last_end) || begin < from) {
      from += from < text.size() ? static_cast<size_t>(LeadLength(static_cast<unsigned char>(text[from]))) : 1;
      continue;
    }
    visit(begin, end);
    from = end;
    last_end = end;
  }
}

}  // namespace octavo::text
