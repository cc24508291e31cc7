// Finds out what a file or a directory holds and loads the tokenizer in it.
#include <filesystem>

#include "octavo/base/error.h"
#include "octavo/text/tokenizer.h"
#include "octavo/text/tokenizer_json.h"

namespace octavo::text {

std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& path) {
  return ParseTokenizerJson(ReadWholeFile(path, size_t{256} << 20), path);
}

}  // namespace octavo::text
