#include "octavo/data/corpus.h"

#include <algorithm>

#include "octavo/base/check.h"
#include "octavo/base/digest.h"
#include "octavo/base/error.h"
#include "octavo/data/corpus_parts.h"

namespace octavo::data {
namespace {

constexpr size_t kEdge = 4096;

bool IsTokens(const PlainFile& file) { return file.extension() == ".bin" || file.extension() == ".npy"; }

bool IsJson(const PlainFile& file, const CorpusOptions& options) {
  if (options.kind != "auto") return options.kind == "json";
  const std::string& extension = file.extension();
  return extension == ".jsonl" || extension == ".json" || extension == ".ndjson";
}

void RefuseOtherFormats(const PlainFile& file) {
  for (const char* extension : {".parquet", ".arrow", ".tfrecord", ".array_record", ".arrayrecord", ".csv", ".idx"}) {
    if (file.extension() != extension) continue;
    throw Error(ErrorCode::kFile, fmt::format("{}: {} files are not read", file.name(), extension),
                "convert it to JSON lines ({\"text\": \"…\"} per line), text or tokens (.bin, .npy)");
  }
}

std::unique_ptr<CorpusPart> MakePart(const std::filesystem::path& path, const CorpusOptions& options) {
  PlainFile file(path);
  RefuseOtherFormats(file);
  if (IsTokens(file)) return MakeTokenPart(std::move(file), options);
  if (options.tokenizer == nullptr) {
    throw Error(ErrorCode::kUsage, fmt::format("{} is text and needs a tokenizer", file.name()),
                "give tokenizer_path=FILE, or tokenizer_path=bytes vocab_size=258");
  }
  const bool json = IsJson(file, options);
  return MakeTextPart(std::move(file), json, options);
}

}  // namespace

std::string IdentityOf(const PlainFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  const size_t edge = std::min(bytes.size(), kEdge);
  return fmt::format("{} {} {}", bytes.size(), DigestHex(bytes.first(edge)), DigestHex(bytes.last(edge)));
}

Corpus::Corpus(const std::vector<std::filesystem::path>& files, const CorpusOptions& options) : starts_{0} {
  OCTAVO_CHECK(!files.empty() && options.length > 0 && options.vocab_size > 0);
  const std::string tokenizer = options.tokenizer == nullptr ? "none"
                                                             : fmt::format("{} {}", options.tokenizer->description(),
                                                                           options.tokenizer->vocabulary_size());
  std::string identity =
      fmt::format("{} {} {} {} {} {} {}", tokenizer, options.kind, options.separator, fmt::join(options.columns, ","),
                  options.add_bos, options.add_eos, options.token_document_id);
  for (const std::filesystem::path& path : files) {
    parts_.push_back(MakePart(path, options));
    starts_.push_back(starts_.back() + parts_.back()->units());
    identity += fmt::format("\n{}", parts_.back()->Identity());
  }
  fingerprint_ = DigestHex(std::as_bytes(std::span(identity)));
  description_ = fmt::format("{} file{}, {} documents", files.size(), files.size() == 1 ? "" : "s", units());
  if (options.tokenizer != nullptr) description_ += fmt::format(", {}", options.tokenizer->description());
}

std::vector<Sequence> Corpus::Read(int64_t unit) const {
  OCTAVO_CHECK(unit >= 0 && unit < units());
  const auto part = std::upper_bound(starts_.begin(), starts_.end(), unit) - starts_.begin() - 1;
  std::vector<Sequence> sequences;
  parts_[static_cast<size_t>(part)]->Read(unit - starts_[static_cast<size_t>(part)], sequences);
  return sequences;
}

}  // namespace octavo::data
