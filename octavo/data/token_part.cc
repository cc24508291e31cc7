#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/data/corpus_parts.h"
#include "octavo/data/token_file.h"

namespace octavo::data {
namespace {

// Windows of `length` tokens and one more, which is only a target: the first token of the next window.
class TokenPart : public CorpusPart {
 public:
  TokenPart(PlainFile file, const CorpusOptions& options)
      : file_(std::move(file)),
        options_(options),
        tokens_(file_.extension() == ".npy" ? ReadTokenNpy(file_.bytes(), file_.name())
                                            : ReadTokenBin(file_.bytes(), options.token_format, file_.name())) {
    if (tokens_.size() < 2) ThrowFile("{} holds {} tokens, at least 2 are needed", file_.name(), tokens_.size());
  }

  int64_t units() const override { return (tokens_.size() - 1 + options_.length - 1) / options_.length; }
  std::string Identity() const override { return fmt::format("{} {}", IdentityOf(file_), options_.length); }

  void Read(int64_t unit, std::vector<Sequence>& sequences) const override {
    const int64_t begin = unit * options_.length, end = std::min(begin + options_.length + 1, tokens_.size());
    Sequence sequence;
    sequence.reserve(static_cast<size_t>(end - begin));
    for (int64_t at = begin; at < end; ++at) {
      const int64_t id = tokens_.At(at);
      if (id < 0 || id >= options_.vocab_size) FailId(at, id);
      sequence.push_back(static_cast<int32_t>(id));
      if (id == options_.token_document_id) Close(sequence, sequences);
    }
    Close(sequence, sequences);
  }

 private:
  static void Close(Sequence& sequence, std::vector<Sequence>& sequences) {
    if (sequence.size() >= 2) sequences.push_back(sequence);
    sequence.clear();
  }

  [[noreturn]] void FailId(int64_t at, int64_t id) const {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: token {} is {}, but vocab_size={}", file_.name(), at, id, options_.vocab_size),
                id < 0 ? "token ids are never negative: is this a file of tokens?"
                       : fmt::format("use vocab_size={} or more: that of the tokenizer that made the file", id + 1));
  }

  PlainFile file_;
  CorpusOptions options_;
  TokenView tokens_;
};

}  // namespace

std::unique_ptr<CorpusPart> MakeTokenPart(PlainFile file, const CorpusOptions& options) {
  return std::make_unique<TokenPart>(std::move(file), options);
}

}  // namespace octavo::data
