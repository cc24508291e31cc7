#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/data/corpus_parts.h"
#include "octavo/data/document_index.h"
#include "octavo/data/json_line.h"
#include "octavo/text/unicode.h"

namespace octavo::data {
namespace {

constexpr size_t kMostLineBytes = 64 << 20;

class TextPart : public CorpusPart {
 public:
  TextPart(PlainFile file, bool json, const CorpusOptions& options)
      : file_(std::move(file)), json_(json), options_(options), index_(file_.text(), options.separator, json) {
    if (index_.size() == 0) ThrowFile("{} holds no document, only blanks", file_.name());
  }

  int64_t units() const override { return index_.size(); }
  std::string Identity() const override { return IdentityOf(file_); }

  void Read(int64_t unit, std::vector<Sequence>& sequences) const override {
    const DocumentRange range = index_.At(unit);
    const std::string_view bytes = file_.text().substr(range.begin, range.end - range.begin);
    std::string held;
    if (json_) held = JsonText(bytes, range.begin);
    const std::string_view text = json_ ? std::string_view(held) : bytes;
    if (!json_) CheckEncoding(text, range.begin);
    if (text.empty()) return;
    Sequence tokens;
    const text::RoleIds& roles = options_.tokenizer->roles();
    if (options_.add_bos && range.first && roles.bos) tokens.push_back(*roles.bos);
    EncodeInPieces(text, tokens);
    if (options_.add_eos && range.last && roles.eos) tokens.push_back(*roles.eos);
    CheckIds(tokens, range.begin);
    if (tokens.size() >= 2) sequences.push_back(std::move(tokens));
  }

 private:
  std::string Where(size_t at) const {
    const std::string_view before = file_.text().substr(0, at);
    return fmt::format("{}:{}", file_.name(), std::count(before.begin(), before.end(), '\n') + 1);
  }

  std::string JsonText(std::string_view line, size_t begin) const {
    const auto where = [&] { return Where(begin); };
    if (line.size() > kMostLineBytes) ThrowFile("{}: a line of {} bytes", where(), line.size());
    return TextOfJsonLine(line, options_.columns, where);
  }

  // A tokenizer would read bad bytes as U+FFFD, silently; plain bytes are tokens of their own.
  void CheckEncoding(std::string_view text, size_t begin) const {
    if (options_.any_bytes || text::IsValidUtf8(text)) return;
    size_t bad = 0;
    while (bad < text.size() && text::ValidLength(text.substr(bad)) > 0) {
      bad += static_cast<size_t>(text::ValidLength(text.substr(bad)));
    }
    throw Error(ErrorCode::kFile, fmt::format("{}: invalid UTF-8 at byte {}", Where(begin + bad), begin + bad),
                "convert the file (iconv -f latin1 -t utf8), or use tokenizer_path=bytes");
  }

  // A long text is tokenized in pieces that end with a line, so that memory stays small.
  void EncodeInPieces(std::string_view text, Sequence& tokens) const {
    const DocumentIndex pieces(text, "", false);
    for (int64_t i = 0; i < pieces.size(); ++i) {
      const DocumentRange piece = pieces.At(i);
      const std::vector<int32_t> ids = options_.tokenizer->Encode(text.substr(piece.begin, piece.end - piece.begin));
      tokens.insert(tokens.end(), ids.begin(), ids.end());
    }
  }

  void CheckIds(const Sequence& tokens, size_t begin) const {
    const int32_t largest = *std::max_element(tokens.begin(), tokens.end());
    if (largest < options_.vocab_size) return;
    throw Error(
        ErrorCode::kUsage,
        fmt::format("{}: the tokenizer gives id {}, but vocab_size={}", Where(begin), largest, options_.vocab_size),
        fmt::format("use vocab_size={} (the tokenizer's size, {}) or more, or another tokenizer_path",
                    options_.tokenizer->vocabulary_size(), options_.tokenizer->description()));
  }

  PlainFile file_;
  bool json_;
  CorpusOptions options_;
  DocumentIndex index_;
};

}  // namespace

std::unique_ptr<CorpusPart> MakeTextPart(PlainFile file, bool json, const CorpusOptions& options) {
  return std::make_unique<TextPart>(std::move(file), json, options);
}

}  // namespace octavo::data
