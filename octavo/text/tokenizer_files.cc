// Finds out what a file or a directory holds and loads the tokenizer in it.
#include <filesystem>

#include "octavo/base/error.h"
#include "octavo/text/sentencepiece.h"
#include "octavo/text/tokenizer.h"
#include "octavo/text/tokenizer_json.h"

namespace octavo::text {

std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& path) {
  const std::string bytes = ReadWholeFile(path, size_t{256} << 20);
  if (path.ends_with(".json")) return ParseTokenizerJson(bytes, path);
  return ParseSentencePiece(bytes, path);
}

}  // namespace octavo::text
