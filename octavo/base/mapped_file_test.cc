#include "octavo/base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "octavo/base/error_test_support.h"
#include "octavo/base/temp_folder.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;

std::string Text(const MappedFile& file) {
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

std::string ErrorOf(const std::filesystem::path& path) {
  return ErrorText(ErrorCode::kFile, [&] { MappedFile file(path); });
}

TEST(MappedFile, HoldsTheBytes) {
  const TempFolder folder;
  std::ofstream(folder / "f") << "hello";
  MappedFile file(folder / "f");
  EXPECT_EQ(Text(file), "hello");
  file.WillNeed(0, 100);
  file.DontNeed(3, 1);
  file.WillNeed(99, 1);
  EXPECT_EQ(Text(file), "hello");
  MappedFile moved = std::move(file);
  EXPECT_EQ(Text(moved), "hello");
  EXPECT_TRUE(file.bytes().empty());
  file = std::move(moved);
  EXPECT_EQ(Text(file), "hello");
}

TEST(MappedFile, EmptyFile) {
  const TempFolder folder;
  std::ofstream(folder / "f").flush();
  EXPECT_TRUE(MappedFile(folder / "f").bytes().empty());
}

TEST(MappedFile, ErrorsNameTheFile) {
  const TempFolder folder;
  EXPECT_THAT(ErrorOf(folder / "missing"), HasSubstr("missing: cannot open: No such file"));
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("is a folder, not a file"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(ErrorOf(folder / "pipe"), HasSubstr("is a device or pipe, not a file"));
  EXPECT_THAT(ErrorOf(folder / "f" / "x"), HasSubstr("cannot open"));
}

}  // namespace
}  // namespace octavo
