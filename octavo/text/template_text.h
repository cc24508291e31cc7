// A UTF-8 string of the template engine in which every byte knows who wrote it. All string operations of the engine go
// through this class, so the origin of a piece survives concatenation, slicing, stripping, replacing and formatting.
// Does not know characters (template_unicode.h) and does not validate: strings are checked where they enter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::text::jinja {

// Bits. No bit set: the template's author wrote it.
using Marks = uint8_t;
inline constexpr Marks kFromTemplate = 0;
inline constexpr Marks kFromUser = 1;   // a message, a tool, a document, a variable given by the caller
inline constexpr Marks kGenerated = 2;  // inside {% generation %}

class Text {
 public:
  // Bytes [begin, end) that share their marks.
  struct Run {
    size_t begin, end;
    Marks marks;
    bool operator==(const Run&) const = default;
  };

  Text() = default;
  explicit Text(std::string bytes, Marks marks = kFromTemplate) : bytes_(std::move(bytes)), tail_(marks) {}

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  void Append(const Text& other);
  void Append(const Text& other, size_t begin, size_t end);
  void Append(std::string_view bytes, Marks marks);
  void Reserve(size_t bytes) { bytes_.reserve(bytes); }

  // Bytes [begin, end), which must lie on character boundaries.
  Text Slice(size_t begin, size_t end) const;
  // The marks of one byte, and of all bytes together.
  Marks MarksAt(size_t position) const;
  Marks AllMarks() const;
  // Sets `marks` on every byte, beside those it has.
  void AddMarks(Marks marks);
  // Maximal runs, ascending, covering all bytes; none for an empty text.
  std::vector<Run> Runs() const;

  // The `safe` filter makes HTML text. Python's Markup type escapes what is joined to it, so the engine must know.
  bool markup() const { return markup_; }
  void set_markup(bool markup) { markup_ = markup; }

 private:
  struct Break {
    size_t end;  // where the run ends
    Marks marks;
  };
  size_t FindRun(size_t position) const;

  std::string bytes_;
  std::vector<Break> breaks_;  // every run but the last; mostly empty
  Marks tail_ = kFromTemplate;
  bool markup_ = false;
};

}  // namespace octavo::text::jinja
