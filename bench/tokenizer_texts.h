// Texts for the tokenizer benchmark: files that are given, or texts made from the project's own words, the same on
// every machine. Used by bench/tokenizer.cc only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octavo::bench {

// A text cut into documents, as programs hand them to a tokenizer.
struct Corpus {
  std::string name;
  std::vector<std::string> documents;
  size_t bytes = 0;
};

// At most `most` bytes of a file, or of a text made up: "english" from the words of the project's pages, "code" from
// its sources, "cjk" from common characters.
Corpus ReadCorpus(const std::string& name, const std::string& path, size_t most);
Corpus MakeCorpus(const std::string& name, size_t bytes);

}  // namespace octavo::bench
