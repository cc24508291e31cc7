// Regular expressions of tokenizer files: PCRE2 with JIT behind limits that grow with the input, so that an honest
// pattern always finishes and a hostile one ends in an Error. Used by pre-tokenizers, normalizers and decoders. Not for
// rules (RE2).
//
// Characters assigned after Unicode 14 count as unassigned here, which is what PCRE2 10.42 knows; the scanners in
// pretokenizer_scan.h know them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "octavo/base/function_ref.h"

namespace octavo::text {

// What a match needs to write, and the time a request may spend. One per thread at a time; costs nothing until first
// used.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(RegexScratch&&) noexcept;
  RegexScratch& operator=(RegexScratch&&) noexcept;

  // Starts the budget of one request over `bytes` of text: matching may then take 0.15 s + 1 us a byte of processor
  // time.
  void BeginRequest(size_t bytes);

 private:
  friend class Regex;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Immutable after construction; any number of threads may use one, each with its own scratch.
class Regex {
 public:
  // `pattern` in the syntax of tokenizer files (regex_syntax.h). Throws a file Error for one that does not compile.
  explicit Regex(std::string_view pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // Calls visit(begin, end) for each match from left to right. An empty match right after another one is skipped.
  // `text` is valid UTF-8. Throws a usage Error when the limits are reached.
  void FindAll(std::string_view text, RegexScratch& scratch, FunctionRef<void(size_t begin, size_t end)> visit) const;

  const std::string& pattern() const { return pattern_; }

 private:
  struct Code;
  std::string pattern_;
  std::unique_ptr<Code> code_;
};

}  // namespace octavo::text
