#include "octavo/checkpoint/codes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/checkpoint_writer.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Codes that run through the whole range of the format.
QArray Sample(Format format, const Shape& shape, const Shape& scales, bool zero = false) {
  const FormatInfo& info = Info(format);
  QArray array;
  array.format = format;
  array.qvalue = Tensor::Empty(shape, info.dtype);
  for (int64_t i = 0; i < shape.size(); ++i) {
    const int64_t code = (i * 7) % (int64_t{1} << std::min(info.bits, 8));
    if (info.dtype == DType::kI8) {
      const int64_t half = int64_t{1} << (info.bits - 1);
      array.qvalue.MutableData<int8_t>()[i] = static_cast<int8_t>(code >= half ? code - 2 * half : code);
    } else if (info.dtype == DType::kI16) {
      array.qvalue.MutableData<int16_t>()[i] = static_cast<int16_t>(code * 100);
    } else {
      array.qvalue.MutableData<uint8_t>()[i] = static_cast<uint8_t>(code);
    }
  }
  array.scale = Tensor::Empty(scales, DType::kF32);
  for (int64_t i = 0; i < scales.size(); ++i) array.scale.MutableData<float>()[i] = 0.5f + static_cast<float>(i);
  if (zero) array.zero_point = Tensor::Zeros(scales, info.dtype);
  return array;
}

std::string Fault(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile);
    return error.message();
  }
  return "no error";
}

QArray Through(const QArray& array, const ManifestQuantized& described) {
  const std::vector<EncodedTensor> tensors = EncodeCodes("w", array);
  return DecodeCodes("here", "w", described, tensors[0].bytes, tensors[1].bytes,
                     tensors.size() > 2 ? std::optional(tensors[2].bytes) : std::nullopt);
}

bool SameBytes(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::equal(a.RawData(), a.RawData() + a.bytes(), b.RawData(), b.RawData() + b.bytes());
}

TEST(Codes, EveryFormatComesBack) {
  for (const FormatInfo& info : AllFormats()) {
    if (info.bits > 16 || info.dtype == DType::kBF16 || info.dtype == DType::kF16) continue;
    SCOPED_TRACE(info.name);
    for (const Shape& shape : {Shape{6, 4}, Shape{3, 5}, Shape{2, 3, 8}}) {
      std::vector<int64_t> ones(static_cast<size_t>(shape.rank()), 1);
      const QArray array = Sample(info.format, shape, Shape(ones), info.kind == FormatKind::kInteger);
      const QArray back = Through(array, DescribeCodes(array));
      EXPECT_EQ(back.format, array.format);
      EXPECT_TRUE(SameBytes(back.qvalue, array.qvalue));
      EXPECT_TRUE(SameBytes(back.scale, array.scale));
      EXPECT_EQ(back.zero_point.has_value(), array.zero_point.has_value());
    }
  }
}

TEST(Codes, TypesAndShapesOnDisk) {
  const auto entry = [](Format format, const Shape& shape) {
    return EncodeCodes("w", Sample(format, shape, {1, shape[1]}))[0].entry;
  };
  EXPECT_EQ(entry(Format::kInt8, {4, 6}).type, "I8");
  EXPECT_EQ(entry(Format::kF8E4M3FN, {4, 6}).type, "F8_E4M3");
  EXPECT_EQ(entry(Format::kF8E5M2, {4, 6}).type, "F8_E5M2");
  EXPECT_EQ(entry(Format::kF8E4M3FNUZ, {4, 6}).type, "U8");
  EXPECT_EQ(entry(Format::kInt4, {4, 6}).type, "U8");
  EXPECT_THAT(entry(Format::kInt4, {4, 6}).shape, ElementsAre(4, 3));  // two codes in a byte
  EXPECT_THAT(entry(Format::kInt4, {3, 5}).shape, ElementsAre(8));     // 15 codes, one half byte left
  EXPECT_THAT(entry(Format::kNF4, {4, 6}).shape, ElementsAre(4, 3));
  EXPECT_EQ(EncodeCodes("w", Sample(Format::kInt4, {4, 6}, {1, 6}))[0].entry.name, "w.codes");
}

// The example of docs/formats/checkpoint.md.
TEST(Codes, BytesAreThoseOfThePage) {
  QArray array;
  array.format = Format::kInt4;
  array.qvalue = Tensor::FromValues<int8_t>({2, 4}, DType::kI8, std::vector<int8_t>{1, -1, 7, -8, 0, 2, 3, -3});
  array.scale = Tensor::FromValues<float>({1, 4}, DType::kF32, std::vector<float>{0.5f, 0.5f, 0.5f, 0.5f});
  const std::vector<EncodedTensor> tensors = EncodeCodes("w", array);
  EXPECT_THAT(tensors[0].bytes.ToVector<uint8_t>(), ElementsAre(0xf1, 0x87, 0x20, 0xd3));
  EXPECT_THAT(tensors[0].entry.shape, ElementsAre(2, 2));
  EXPECT_THAT(DescribeCodes(array).tile, ElementsAre(2, 1));
}

TEST(Codes, WhatDoesNotFitIsNamed) {
  const QArray array = Sample(Format::kInt4, {4, 6}, {2, 6});
  const ManifestQuantized right = DescribeCodes(array);
  EXPECT_THAT(right.tile, ElementsAre(2, 1));
  ManifestQuantized wrong = right;
  wrong.format = "int3.5";
  EXPECT_THAT(Fault([&] { Through(array, wrong); }), HasSubstr("'w' is of the unknown format 'int3.5'"));
  wrong = right;
  wrong.format = "int8";
  EXPECT_THAT(Fault([&] { Through(array, wrong); }), HasSubstr("12 bytes of int8 codes, expected 24"));
  wrong = right;
  wrong.shape = {4, 8};
  EXPECT_THAT(Fault([&] { Through(array, wrong); }), HasSubstr("expected 16 bytes for [4, 8]"));
  wrong.shape = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_THAT(Fault([&] { Through(array, wrong); }), HasSubstr("expected -1 bytes"));
  wrong = right;
  wrong.shape = {6, 4};  // as many codes, but the scales are of another shape
  EXPECT_THAT(Fault([&] { Through(array, wrong); }), HasSubstr("here: "));
  wrong = right;
  wrong.tile = {4, 1};
  EXPECT_THAT(Fault([&] { Through(array, wrong); }), HasSubstr("tiles of [2, 1], manifest.json says [4, 1]"));
}

TEST(CheckpointWriter, AStreamIsACheckpoint) {
  const TempFolder folder;
  const QArray codes = Sample(Format::kInt4, {8, 6}, {2, 6});
  const Tensor norm = Tensor::FromValues<float>({3}, DType::kF32, std::vector<float>{1, 2, 3});
  WriteCheckpointOptions options;
  options.file_bytes = 60;
  CheckpointWriter writer(folder / "c", {{"a", 12}, {"w", 72}, {"z", 12}}, options);
  writer.manifest().kind = "quantized";
  writer.manifest().model = "{\"x\":1}";
  writer.manifest().recipe = "rules: []";
  writer.manifest().recipe_name = "r";
  writer.manifest().recipe_options = {{"k", "v"}};
  writer.manifest().source_digest = std::string(32, '0');
  writer.Add("a", {{{"a", "F32", {3}}, norm}});
  std::vector<std::pair<TensorEntry, Tensor>> tensors;
  for (const EncodedTensor& part : EncodeCodes("w", codes)) tensors.emplace_back(part.entry, part.bytes);
  writer.Add("w", tensors);
  writer.manifest().quantized["w"] = DescribeCodes(codes);
  writer.Add("z", {{{"z", "F32", {3}}, norm}});
  writer.AddState({{"state/s", norm}});
  writer.AddCarried("tokenizer.json", "{}");
  writer.Close();
  EXPECT_FALSE(std::filesystem::exists(folder / "c"));
  Checkpoint(writer.temporary()).Verify();
  writer.Publish();
  const Checkpoint checkpoint(folder / "c");
  checkpoint.Verify();
  const Manifest& manifest = checkpoint.manifest();
  EXPECT_EQ(manifest.files.size(), 4u);  // three of the model, one of state
  EXPECT_EQ(manifest.tensors.size(), 5u);
  EXPECT_EQ(manifest.model, "{\"x\":1}");
  EXPECT_EQ(manifest.recipe_options.at(0).second, "v");
  EXPECT_EQ(manifest.quantized.at("w").format, "int4");
  EXPECT_TRUE(SameBytes(checkpoint.Load("a"), norm));
  EXPECT_EQ(checkpoint.LoadCarried("tokenizer.json"), "{}");
  EXPECT_EQ(manifest.tensors.at("w.codes").type, "U8");
}

}  // namespace
}  // namespace octavo
