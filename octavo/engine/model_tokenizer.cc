#include "octavo/engine/model_tokenizer.h"

#include "octavo/base/error.h"
#include "octavo/config/settings.h"

namespace octavo::engine {

std::string TokenizerPathOf(const weights::StoredModel& stored) {
  if (!stored.tokenizer.empty() || stored.config_text.empty()) return stored.tokenizer.string();
  return Settings::FromText(stored.config_text, "config.yml of the checkpoint").Text("tokenizer_path");
}

std::unique_ptr<text::Tokenizer> OpenTokenizer(const std::string& path, int64_t vocabulary_size) {
  std::unique_ptr<text::Tokenizer> tokenizer = text::LoadTokenizer(path);
  if (tokenizer->vocabulary_size() > vocabulary_size) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} has {} tokens, the model {}", path, tokenizer->vocabulary_size(), vocabulary_size),
                "this is the tokenizer of another model; tokenizer_path=…");
  }
  return tokenizer;
}

std::vector<int32_t> EncodePrompt(const text::Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.Encode(text, {.add_special = true, .parse_special = false});
  const auto& eos = tokenizer.roles().eos;
  if (ids.size() > 1 && eos && ids.back() == *eos) ids.pop_back();
  return ids;
}

}  // namespace octavo::engine
