// The pre-tokenizers that GGUF files name: which patterns cut the text, one after the other. Used by gguf_vocab.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octavo::text {

struct GgufPre {
  std::vector<std::string> patterns;
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says otherwise
};

// Throws a file Error that begins with `name` for a name that is not known.
GgufPre FindGgufPre(std::string_view pre, std::string_view name);

// The way back: the name for these patterns; empty when there is none.
std::string FindGgufPreName(const std::vector<std::string>& patterns, bool ignore_merges);

// One name for each set of patterns.
std::vector<std::string> GgufPreNames();

}  // namespace octavo::text
