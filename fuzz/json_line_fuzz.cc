// Any bytes as JSON lines: documents in order, each with a text or a file error, and no byte outside the input.
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/data/document_index.h"
#include "octavo/data/json_line.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> columns = {"text", "b"};
  const octavo::data::DocumentIndex lines(text, "", true, 3), documents(text, "\n\n", false, 2);
  size_t end = 0;
  for (int64_t i = 0; i < lines.size(); ++i) {
    const octavo::data::DocumentRange range = lines.At(i);
    if (range.begin < end || range.end < range.begin || range.end > size) __builtin_trap();
    end = range.end;
    try {
      octavo::data::TextOfJsonLine(text.substr(range.begin, range.end - range.begin), columns,
                                   [] { return std::string("fuzz:1"); });
    } catch (const octavo::Error&) {
    }
  }
  end = 0;
  for (int64_t i = 0; i < documents.size(); ++i) {
    const octavo::data::DocumentRange range = documents.At(i);
    if (range.begin < end || range.end < range.begin || range.end > size) __builtin_trap();
    end = range.end;
  }
  return 0;
}
