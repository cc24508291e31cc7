// The bytes of a data file, decompressed when its name ends in .gz or .zst. A compressed file is unpacked once into a
// scratch file (removed at once from its folder, so nothing stays behind) and mapped: documents are read in any order,
// and memory stays small.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "octavo/base/mapped_file.h"

namespace octavo::data {

class PlainFile {
 public:
  // Throws a file Error that names the file: missing, a folder, empty, truncated or damaged compression.
  explicit PlainFile(const std::filesystem::path& path);

  const std::string& name() const { return name_; }  // as the user wrote it
  // The last extension without .gz and .zst: ".jsonl"; empty when there is none.
  const std::string& extension() const { return extension_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()}; }
  std::span<const std::byte> bytes() const { return file_.bytes(); }

 private:
  std::string name_, extension_;
  MappedFile file_;
};

}  // namespace octavo::data
