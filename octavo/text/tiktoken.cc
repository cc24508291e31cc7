#include "octavo/text/tiktoken.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "octavo/base/error.h"
#include "octavo/text/bpe.h"
#include "octavo/text/pretokenizer_scan.h"
#include "octavo/text/tokenizer_base64.h"
#include "octavo/text/tokenizer_bytechars.h"
#include "octavo/text/tokenizer_pipeline.h"
#include "octavo/text/tokenizer_trie.h"

namespace octavo::text {
namespace {

// The 256 special tokens of Llama 3, in order from 128000.
std::vector<std::pair<std::string, int32_t>> Llama3Special() {
  std::vector<std::string> names = {"<|begin_of_text|>", "<|end_of_text|>"};
  const auto reserve = [&](int from, int to) {
    for (int i = from; i <= to; ++i) names.push_back(fmt::format("<|reserved_special_token_{}|>", i));
  };
  reserve(0, 3);
  names.insert(names.end(), {"<|start_header_id|>", "<|end_header_id|>"});
  reserve(4, 4);
  names.push_back("<|eot_id|>");
  reserve(5, 250);
  std::vector<std::pair<std::string, int32_t>> special;
  for (size_t i = 0; i < names.size(); ++i) special.emplace_back(names[i], static_cast<int32_t>(128000 + i));
  return special;
}

struct Line {
  std::string bytes;
  int32_t rank;
};

std::optional<Line> ReadLine(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0) return std::nullopt;
  std::optional<std::string> bytes = DecodeBase64(line.substr(0, space));
  const std::string_view number = line.substr(space + 1);
  int32_t rank = -1;
  const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), rank);
  const bool whole = problem == std::errc() && end == number.data() + number.size();
  if (!bytes || bytes->empty() || !whole || rank < 0) return std::nullopt;
  return Line{std::move(*bytes), rank};
}

std::string_view NextLine(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

using Ranks = std::unordered_map<std::string, int32_t>;

// Any two parts that make up a token merge into it, at the token's rank.
std::vector<MergeRule> MergesByRank(const Ranks& ranks) {
  std::vector<MergeRule> merges;
  for (const auto& [bytes, rank] : ranks) {
    for (size_t at = 1; at < bytes.size(); ++at) {
      const auto left = ranks.find(bytes.substr(0, at));
      if (left == ranks.end()) continue;
      const auto right = ranks.find(bytes.substr(at));
      if (right != ranks.end()) merges.push_back({left->second, right->second, rank, rank});
    }
  }
  return merges;
}

void CheckRanks(const Ranks& ranks, std::string_view name) {
  for (int byte = 0; byte < 256; ++byte) {
    if (!ranks.contains(std::string(1, static_cast<char>(byte)))) {
      ThrowFile("{}: the byte 0x{:02x} has no rank", name, byte);
    }
  }
  for (const auto& [bytes, rank] : ranks) {
    if (bytes.size() > ByteTrie::kMaxKey) {
      ThrowFile("{}: rank {} is a token of {} bytes: at most {} are accepted", name, rank, bytes.size(),
                ByteTrie::kMaxKey);
    }
  }
}

}  // namespace

std::optional<TiktokenEncoding> TiktokenEncodingBySize(size_t ranks) {
  const std::string end = "<|endoftext|>";
  const std::string gpt2(kGpt2Pattern);
  switch (ranks) {
    case 50256:
      return TiktokenEncoding{"gpt2", gpt2, {{end, 50256}}, end, end, false};
    case 50280:
      return TiktokenEncoding{"p50k_base", gpt2, {{end, 50256}}, end, end, false};
    case 100256:
      return TiktokenEncoding{"cl100k_base",
                              std::string(kCl100kPattern),
                              {{end, 100257},
                               {"<|fim_prefix|>", 100258},
                               {"<|fim_middle|>", 100259},
                               {"<|fim_suffix|>", 100260},
                               {"<|endofprompt|>", 100276}},
                              "",
                              end,
                              false};
    case 199998:
      return TiktokenEncoding{
          "o200k_base", std::string(kO200kPattern), {{end, 199999}, {"<|endofprompt|>", 200018}}, "", end, false};
    case 128000:
      return TiktokenEncoding{
          "llama3", std::string(kLlama3Pattern), Llama3Special(), "<|begin_of_text|>", "<|end_of_text|>", true};
    case 151643:
      return TiktokenEncoding{"qwen",
                              std::string(kQwen2Pattern),
                              {{end, 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}},
                              "",
                              end,
                              false};
    default:
      return std::nullopt;
  }
}

bool LooksLikeTiktoken(std::string_view text) {
  std::string_view rest = text.substr(0, 4096);
  return !rest.empty() && ReadLine(NextLine(rest)).has_value();
}

std::unique_ptr<Tokenizer> ParseTiktoken(std::string_view text, std::string_view name,
                                         const std::optional<TiktokenEncoding>& given) {
  Vocabulary vocabulary;
  Ranks ranks;
  std::string_view rest = text;
  for (size_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = NextLine(rest);
    if (line.empty()) continue;
    const std::optional<Line> entry = ReadLine(line);
    if (!entry) ThrowFile("{}: line {}: expected base64, a space and a rank", name, number);
    if (!ranks.emplace(entry->bytes, entry->rank).second) {
      ThrowFile("{}: line {}: the same bytes twice", name, number);
    }
    vocabulary.Add(BytesToChars(entry->bytes), entry->rank);
  }
  const std::optional<TiktokenEncoding> encoding = given ? given : TiktokenEncodingBySize(ranks.size());
  if (!encoding) {
    throw Error(ErrorCode::kFile, fmt::format("{}: {} ranks are none of the known encodings", name, ranks.size()),
                "known: gpt2 50256, p50k 50280, cl100k 100256, Llama 3 128000, Qwen 151643, o200k 199998; "
                "use tokenizer.json instead");
  }
  CheckRanks(ranks, name);
  PipelineParts parts;
  parts.description = fmt::format("tiktoken, {}", encoding->name);
  RoleIds roles;
  for (const auto& [content, id] : encoding->special) {
    if (vocabulary.Text(id)) ThrowFile("{}: the special token {} has the id {} of a rank", name, content, id);
    AddedToken token;
    token.id = id;
    token.content = token.pattern = content;
    token.special = true;
    parts.added.push_back(std::move(token));
    if (content == encoding->bos) roles.bos = id;
    if (content == encoding->eos) roles.eos = id;
  }
  BpeOptions options;
  options.ignore_merges = true;
  parts.model = std::make_unique<Bpe>(std::move(vocabulary), MergesByRank(ranks), std::move(options));
  parts.pretokenizer = MakeByteLevelSplit({encoding->pattern}, true);
  parts.decoder = Decoder::ByteLevel();
  if (encoding->add_bos && roles.bos) parts.post = PostProcessor({{*roles.bos, encoding->bos}}, {});
  auto tokenizer = std::make_unique<Pipeline>(std::move(parts));
  tokenizer->set_roles(roles);
  return tokenizer;
}

}  // namespace octavo::text
