#include "octavo/checkpoint/safetensors_writer.h"

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/safetensors.h"

namespace octavo {
namespace {

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(SafetensorsWriter, StreamsWhatTheReaderReads) {
  const TempFolder folder;
  FolderPublisher publisher(folder / "out");
  SafetensorsWriter writer(publisher.Create("a.safetensors"),
                           {{"quote\"ü", "F32", {2}},
                            {"empty", "I64", {0, 3}},
                            {"scalar", "BF16", {}},
                            {"codes", "F8_E4M3", {3}},
                            {"none", "U8", {0}}},
                           {{"k", "v"}});
  writer.Write(Bytes("abc"));
  writer.Write(Bytes("defghij"));
  writer.Write(Bytes("klm"));
  writer.Close();
  publisher.Publish();
  const SafetensorsFile file(folder / "out/a.safetensors");
  EXPECT_EQ(file.metadata().at("k"), "v");
  ASSERT_EQ(file.tensors().size(), 5u);
  EXPECT_EQ(file.At("quote\"ü").CopyAs<char>(), (std::vector<char>{'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}));
  EXPECT_EQ(file.At("scalar").CopyAs<char>(), (std::vector<char>{'i', 'j'}));
  EXPECT_EQ(file.At("codes").type, "F8_E4M3");
  EXPECT_EQ(writer.digests()[0], DigestHex(Bytes("abcdefgh")));
  EXPECT_EQ(writer.digests()[1], DigestHex({}));
  EXPECT_EQ(writer.digests()[3], DigestHex(Bytes("klm")));
  EXPECT_EQ(writer.file_bytes(), std::filesystem::file_size(folder / "out/a.safetensors"));
}

TEST(SafetensorsWriter, RefusesWhatTheFormatCannotHold) {
  const TempFolder folder;
  FolderPublisher publisher(folder / "out");
  EXPECT_THROW(SafetensorsWriter(publisher.Create("a"), {{"x", "F32", {1}}, {"x", "F32", {1}}}), Error);
  EXPECT_THROW(SafetensorsWriter(publisher.Create("b"), {{"x", "F4", {1}}}), Error);
  EXPECT_THROW(SafetensorsWriter(publisher.Create("c"), {{"x", "Q9", {1}}}), Error);
  EXPECT_THROW((TensorEntry{"x", "F64", {INT64_MAX, 2}}.bytes()), Error);
  EXPECT_EQ(SafetensorsType(DType::kBF16), "BF16");
  EXPECT_EQ(SafetensorsType(DType::kU8, Format::kF8E5M2), "F8_E5M2");
  EXPECT_THROW(SafetensorsType(DType::kI8, Format::kInt4), Error);
}

}  // namespace
}  // namespace octavo
