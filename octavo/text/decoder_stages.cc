#include "octavo/text/decoder_stages.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "octavo/text/tokenizer_bytechars.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  size_t at = from.empty() ? std::string::npos : text.find(from);
  if (at == std::string::npos) return;
  std::string out;
  size_t done = 0;
  for (; at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  text = out.append(text, done);
}

// What the reference library calls clean-up: English written together again.
void CleanUp(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) ReplaceAll(text, from, to);
}

class JoinBySpaces : public DecodeStage {
 public:
  void Push(std::string_view token, const Out& out) override {
    if (!first_) out(" ");
    first_ = false;
    out(token);
  }

 private:
  bool first_ = true;
};

class ByteLevelStage : public DecodeStage {
 public:
  void Push(std::string_view token, const Out& out) override {
    // A token with any other character is taken as it is.
    if (const std::optional<std::string> bytes = CharsToBytes(token)) {
      pending_ += *bytes;
    } else {
      pending_ += token;
    }
    const size_t complete = CompletePrefix(pending_);
    if (complete == 0) return;
    Emit(std::string_view(pending_).substr(0, complete), out);
    pending_.erase(0, complete);
  }
  void Finish(const Out& out) override {
    if (!pending_.empty()) Emit(pending_, out);
    pending_.clear();
  }

 private:
  static void Emit(std::string_view bytes, const Out& out) {
    if (IsValidUtf8(bytes)) {
      out(bytes);
    } else {
      out(ReplaceInvalidUtf8(bytes));
    }
  }
  std::string pending_;
};

class ByteFallbackStage : public DecodeStage {
 public:
  explicit ByteFallbackStage(DecodeMode mode) : mode_(mode) {}
  void Push(std::string_view token, const Out& out) override {
    const int byte = FallbackByte(token);
    if (byte < 0) {
      Finish(out);
      out(token);
      return;
    }
    run_.push_back(static_cast<char>(byte));
    if (mode_ == DecodeMode::kStream) Drain(out);
  }
  void Finish(const Out& out) override {
    if (run_.empty()) return;
    if (IsValidUtf8(run_)) {
      out(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) out(kReplacement);
    }
    run_.clear();
  }

 private:
  // Lets out what is decided: complete characters, and bytes that cannot start one.
  void Drain(const Out& out) {
    while (!run_.empty()) {
      if (const int length = ValidLength(run_); length > 0) {
        out(std::string_view(run_).substr(0, static_cast<size_t>(length)));
        run_.erase(0, static_cast<size_t>(length));
      } else if (CompletePrefix(run_) > 0) {
        out(kReplacement);
        run_.erase(0, 1);
      } else {
        return;
      }
    }
  }
  DecodeMode mode_;
  std::string run_;
};

class Fuse : public DecodeStage {
 public:
  void Push(std::string_view token, const Out& out) override { out(token); }
};

class Strip : public DecodeStage {
 public:
  Strip(char32_t c, size_t start, size_t stop) : start_(start), stop_(stop) { AppendUtf8(c, c_); }
  void Push(std::string_view token, const Out& out) override {
    for (size_t i = 0; i < start_ && token.starts_with(c_); ++i) token.remove_prefix(c_.size());
    for (size_t i = 0; i < stop_ && token.ends_with(c_); ++i) token.remove_suffix(c_.size());
    out(token);
  }

 private:
  std::string c_;
  size_t start_, stop_;
};

// The token arrives in parts: the front is stripped as it comes, the last `stop` characters wait if they might be
// stripped.
class StripFused : public DecodeStage {
 public:
  StripFused(char32_t c, size_t start, size_t stop) : left_(start), stop_(stop) { AppendUtf8(c, c_); }
  void Push(std::string_view text, const Out& out) override {
    while (left_ > 0 && text.starts_with(c_)) {
      text.remove_prefix(c_.size());
      --left_;
    }
    if (text.empty()) return;
    left_ = 0;
    std::string all = std::exchange(waiting_, std::string()).append(text);
    size_t end = all.size();
    for (size_t i = 0; i < stop_ && std::string_view(all).substr(0, end).ends_with(c_); ++i) end -= c_.size();
    waiting_ = all.substr(end);
    if (end > 0) out(std::string_view(all).substr(0, end));
  }

 private:
  std::string c_;
  size_t left_, stop_;
  std::string waiting_;
};

class ReplaceLiteral : public DecodeStage {
 public:
  ReplaceLiteral(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void Push(std::string_view token, const Out& out) override {
    if (token.find(from_) == std::string_view::npos) {
      out(token);
      return;
    }
    std::string text(token);
    ReplaceAll(text, from_, to_);
    out(text);
  }

 private:
  std::string from_, to_;
};

class Replace : public DecodeStage {
 public:
  Replace(std::shared_ptr<const TextPattern> pattern, std::string to)
      : pattern_(std::move(pattern)), to_(std::move(to)) {}
  void Push(std::string_view token, const Out& out) override {
    std::string text;
    size_t done = 0;
    scratch_.BeginRequest(token.size());
    pattern_->FindAll(token, scratch_, [&](size_t begin, size_t end) {
      text.append(token.substr(done, begin - done)).append(to_);
      done = end;
    });
    out(text.append(token.substr(done)));
  }

 private:
  std::shared_ptr<const TextPattern> pattern_;
  std::string to_;
  RegexScratch scratch_;
};

class Metaspace : public DecodeStage {
 public:
  Metaspace(std::string symbol, bool strip_first, bool fused)
      : symbol_(std::move(symbol)), strip_first_(strip_first), fused_(fused) {}
  void Push(std::string_view token, const Out& out) override {
    std::string text(token);
    ReplaceAll(text, symbol_, strip_first_ && first_ ? "" : " ");
    if (!fused_) first_ = false;
    out(text);
  }

 private:
  std::string symbol_;
  bool strip_first_, fused_;
  bool first_ = true;
};

class WordPieceStage : public DecodeStage {
 public:
  WordPieceStage(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void Push(std::string_view token, const Out& out) override {
    std::string text;
    if (first_) {
      text = token;
    } else if (token.starts_with(prefix_)) {
      text = token.substr(prefix_.size());
    } else {
      text.append(" ").append(token);
    }
    first_ = false;
    if (cleanup_) CleanUp(text);
    out(text);
  }

 private:
  std::string prefix_;
  bool cleanup_;
  bool first_ = true;
};

// The suffix becomes a space, but at the end of the last token nothing: one token waits.
class BpeSuffix : public DecodeStage {
 public:
  explicit BpeSuffix(std::string suffix) : suffix_(std::move(suffix)) {}
  void Push(std::string_view token, const Out& out) override {
    if (has_waiting_) Emit(" ", out);
    waiting_ = token;
    has_waiting_ = true;
  }
  void Finish(const Out& out) override {
    if (has_waiting_) Emit("", out);
    has_waiting_ = false;
  }

 private:
  void Emit(std::string_view replacement, const Out& out) {
    ReplaceAll(waiting_, suffix_, replacement);
    out(waiting_);
  }
  std::string suffix_, waiting_;
  bool has_waiting_ = false;
};

class Ctc : public DecodeStage {
 public:
  Ctc(std::string pad, std::string delimiter, bool cleanup)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}
  void Push(std::string_view token, const Out& out) override {
    if (any_ && token == previous_) return;
    previous_ = token;
    any_ = true;
    std::string text(token);
    ReplaceAll(text, pad_, "");
    if (cleanup_) {
      CleanUp(text);
      ReplaceAll(text, delimiter_, " ");
    }
    if (!text.empty()) out(text);
  }

 private:
  std::string pad_, delimiter_, previous_;
  bool cleanup_;
  bool any_ = false;
};

class Hold : public DecodeStage {
 public:
  explicit Hold(std::unique_ptr<DecodeStage> stage) : stage_(std::move(stage)) {}
  void Push(std::string_view token, const Out&) override {
    text_ += token;
    any_ = true;
  }
  void Finish(const Out& out) override {
    if (any_) stage_->Push(text_, out);
    stage_->Finish(out);
  }

 private:
  std::unique_ptr<DecodeStage> stage_;
  std::string text_;
  bool any_ = false;
};

}  // namespace

size_t CompletePrefix(std::string_view bytes) {
  // At most three bytes at the end can be a character that has started.
  for (size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    const auto lead = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((lead & 0xC0) == 0x80) continue;
    const size_t wanted = lead >= 0xC2 && lead <= 0xDF   ? 2
                          : lead >= 0xE0 && lead <= 0xEF ? 3
                          : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                         : 1;
    if (back >= wanted) break;
    // Started, unless its second byte already rules it out.
    if (back >= 2) {
      const auto second = static_cast<unsigned char>(bytes[bytes.size() - back + 1]);
      const bool bad = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                       (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
      if (bad) break;
    }
    return bytes.size() - back;
  }
  return bytes.size();
}

int FallbackByte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  const int high = digit(token[3]);
  const int low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::unique_ptr<DecodeStage> MakeJoinBySpaces() { return std::make_unique<JoinBySpaces>(); }
std::unique_ptr<DecodeStage> MakeByteLevelStage() { return std::make_unique<ByteLevelStage>(); }
std::unique_ptr<DecodeStage> MakeByteFallback(DecodeMode mode) { return std::make_unique<ByteFallbackStage>(mode); }
std::unique_ptr<DecodeStage> MakeFuse() { return std::make_unique<Fuse>(); }
std::unique_ptr<DecodeStage> MakeStrip(char32_t c, size_t start, size_t stop) {
  return std::make_unique<Strip>(c, start, stop);
}
std::unique_ptr<DecodeStage> MakeStripFused(char32_t c, size_t start, size_t stop) {
  return std::make_unique<StripFused>(c, start, stop);
}
std::unique_ptr<DecodeStage> MakeReplaceLiteral(std::string from, std::string to) {
  return std::make_unique<ReplaceLiteral>(std::move(from), std::move(to));
}
std::unique_ptr<DecodeStage> MakeReplace(std::shared_ptr<const TextPattern> pattern, std::string to) {
  return std::make_unique<Replace>(std::move(pattern), std::move(to));
}
std::unique_ptr<DecodeStage> MakeMetaspace(std::string symbol, bool strip_first, bool fused) {
  return std::make_unique<Metaspace>(std::move(symbol), strip_first, fused);
}
std::unique_ptr<DecodeStage> MakeWordPiece(std::string prefix, bool cleanup) {
  return std::make_unique<WordPieceStage>(std::move(prefix), cleanup);
}
std::unique_ptr<DecodeStage> MakeBpeSuffix(std::string suffix) {
  return std::make_unique<BpeSuffix>(std::move(suffix));
}
std::unique_ptr<DecodeStage> MakeCtc(std::string pad, std::string delimiter, bool cleanup) {
  return std::make_unique<Ctc>(std::move(pad), std::move(delimiter), cleanup);
}
std::unique_ptr<DecodeStage> MakeHold(std::unique_ptr<DecodeStage> stage) {
  return std::make_unique<Hold>(std::move(stage));
}

}  // namespace octavo::text
