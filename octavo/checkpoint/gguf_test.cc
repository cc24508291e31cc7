#include "octavo/checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "octavo/base/error.h"
#include "octavo/base/publish.h"
#include "octavo/base/rng.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/gguf_writer.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file with every kind of key and two tensors, made by the writer.
std::string GoodFile() {
  std::string bytes;
  GgufWriter writer(
      [&](std::span<const std::byte> part) { bytes.append(reinterpret_cast<const char*>(part.data()), part.size()); });
  writer.Text("general.architecture", "llama");
  writer.U32("llama.block_count", 2);
  writer.F32("llama.rope.freq_base", 10000.0f);
  writer.Bool("tokenizer.ggml.add_bos_token", true);
  writer.Texts("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "", "ab"});
  writer.F32s("tokenizer.ggml.scores", std::vector<float>{0, -1, -2.5f});
  writer.I32s("tokenizer.ggml.token_type", std::vector<int32_t>{3, 1, 1});
  writer.Tensor("a.weight", GgmlType::kF32, std::vector<int64_t>{2, 3});
  writer.Tensor("b.weight", GgmlType::kQ8_0, std::vector<int64_t>{2, 64});
  writer.WriteHeader();
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  writer.Write(std::as_bytes(std::span(a)));
  const std::vector<std::byte> b(4 * 34, std::byte{1});
  writer.Write(std::span(b).first(34));
  writer.Write(std::span(b).subspan(34));
  writer.Finish();
  return bytes;
}

GgufContent Parse(const std::string& bytes) { return ParseGguf(std::as_bytes(std::span(bytes)), "t.gguf"); }

std::string ErrorOf(const std::string& bytes) {
  try {
    Parse(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile);
    EXPECT_THAT(error.what(), HasSubstr("t.gguf"));
    return error.what();
  }
  return "no error";
}

// Pieces of files that the writer refuses to make.
template <typename T>
std::string Number(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}
std::string Text(const std::string& text) { return Number<uint64_t>(text.size()) + text; }
std::string Head(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
  return "GGUF" + Number(version) + Number(tensors) + Number(keys);
}
std::string Row(const std::string& name, std::vector<uint64_t> lengths, uint32_t type, uint64_t offset) {
  std::string row = Text(name) + Number(static_cast<uint32_t>(lengths.size()));
  for (const uint64_t length : lengths) row += Number(length);
  return row + Number(type) + Number(offset);
}
std::string Aligned(std::string bytes) { return bytes.append((32 - bytes.size() % 32) % 32, '\0'); }

TEST(Gguf, ReadsWhatTheWriterWrites) {
  const std::string bytes = GoodFile();
  const GgufContent content = Parse(bytes);
  EXPECT_EQ(content.version(), 3u);
  EXPECT_EQ(content.Text("general.architecture"), "llama");
  EXPECT_EQ(content.Int("llama.block_count"), 2);
  EXPECT_EQ(content.Number("llama.block_count"), 2.0);
  EXPECT_EQ(content.Number("llama.rope.freq_base"), 10000.0);
  EXPECT_EQ(content.Bool("tokenizer.ggml.add_bos_token"), true);
  EXPECT_THAT(*content.Texts("tokenizer.ggml.tokens"), ElementsAre("<s>", "", "ab"));
  EXPECT_THAT(*content.Numbers("tokenizer.ggml.scores"), ElementsAre(0, -1, -2.5f));
  EXPECT_THAT(*content.Ints("tokenizer.ggml.token_type"), ElementsAre(3, 1, 1));
  EXPECT_EQ(content.Int("missing"), std::nullopt);
  ASSERT_EQ(content.tensors().size(), 2u);
  const GgufTensor* a = content.FindTensor("a.weight");
  ASSERT_NE(a, nullptr);
  EXPECT_THAT(a->shape, ElementsAre(2, 3));
  float third;
  std::memcpy(&third, a->bytes.data() + 8, 4);
  EXPECT_EQ(third, 3.0f);
  EXPECT_EQ(content.FindTensor("b.weight")->bytes.size(), 136u);
  EXPECT_EQ(content.FindTensor("c"), nullptr);
}

TEST(Gguf, WrongTypesOfKeysAreNamed) {
  const std::string bytes = GoodFile();
  const GgufContent content = Parse(bytes);
  const auto message = [&](auto get) -> std::string {
    try {
      get();
    } catch (const Error& error) {
      return error.message();
    }
    return "no error";
  };
  EXPECT_EQ(message([&] { content.Int("general.architecture"); }),
            "t.gguf: key 'general.architecture' is not a whole number");
  EXPECT_EQ(message([&] { content.Text("tokenizer.ggml.tokens"); }),
            "t.gguf: key 'tokenizer.ggml.tokens' is not a single value");
  EXPECT_EQ(message([&] { content.Ints("tokenizer.ggml.scores"); }),
            "t.gguf: key 'tokenizer.ggml.scores' is not an array of whole numbers");
  EXPECT_EQ(message([&] { content.Bool("llama.block_count"); }),
            "t.gguf: key 'llama.block_count' is not a truth value");
}

TEST(Gguf, ReadsAFileFromDisk) {
  const TempFolder folder;
  PublishFile(folder / "m.gguf", GoodFile());
  const GgufFile file(folder / "m.gguf");
  EXPECT_EQ(file.content().tensors().size(), 2u);
}

TEST(Gguf, RefusesWhatIsNoGguf) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("the magic number needs 4 bytes"));
  EXPECT_THAT(ErrorOf("GGML" + std::string(20, '\0')), HasSubstr("no GGUF file"));
  EXPECT_THAT(ErrorOf(Head(0, 0, 1)), HasSubstr("GGUF version 1 is not read"));
  EXPECT_THAT(ErrorOf(Head(0, 0, 0x03000000)), HasSubstr("big-endian"));
  EXPECT_EQ(ErrorOf(Head(0, 0)), "no error");
}

TEST(Gguf, RefusesCountsBeforeItAllocates) {
  EXPECT_THAT(ErrorOf(Head(uint64_t{1} << 60, 0)), HasSubstr("claims 1152921504606846976 tensors"));
  EXPECT_THAT(ErrorOf(Head(0, uint64_t{1} << 60)), HasSubstr("claims 1152921504606846976 keys"));
  EXPECT_THAT(ErrorOf(Head(0, 1) + Number<uint64_t>(uint64_t{1} << 62)), HasSubstr("at most 65535"));
  EXPECT_THAT(ErrorOf(Head(0, 1) + Text("k") + Number<uint32_t>(9) + Number<uint32_t>(12) +
                      Number<uint64_t>(uint64_t{1} << 61)),
              HasSubstr("claims 2305843009213693952 elements"));
  EXPECT_THAT(
      ErrorOf(Head(0, 1) + Text("k") + Number<uint32_t>(9) + Number<uint32_t>(8) + Number<uint64_t>(uint64_t{1} << 61)),
      HasSubstr("claims 2305843009213693952 texts"));
  EXPECT_THAT(ErrorOf(Head(0, 1) + Text("k") + Number<uint32_t>(8) + Number<uint64_t>(1000)),
              HasSubstr("needs 1000 bytes at byte"));
}

TEST(Gguf, RefusesBadKeys) {
  EXPECT_THAT(ErrorOf(Head(0, 1) + Text("k") + Number<uint32_t>(13)), HasSubstr("key 'k' has the unknown type 13"));
  EXPECT_THAT(ErrorOf(Head(0, 1) + Text("k") + Number<uint32_t>(7) + Number<uint8_t>(2)), HasSubstr("truth value"));
  EXPECT_THAT(ErrorOf(Head(0, 1) + Text("k") + Number<uint32_t>(9) + Number<uint32_t>(9) + Number<uint64_t>(0)),
              HasSubstr("array of arrays"));
  const std::string key = Text("k") + Number<uint32_t>(0) + "x";
  EXPECT_THAT(ErrorOf(Head(0, 2) + key + key), HasSubstr("the key 'k' occurs twice"));
  for (const uint32_t bad : {0u, 4u, 24u, 1u << 31, 1u << 21}) {
    EXPECT_THAT(ErrorOf(Head(0, 1) + Text("general.alignment") + Number<uint32_t>(4) + Number(bad)),
                HasSubstr("general.alignment"));
  }
}

TEST(Gguf, RefusesBadTensors) {
  const auto with = [](const std::string& row) { return ErrorOf(Aligned(Head(1, 0) + row) + std::string(64, '\0')); };
  EXPECT_THAT(with(Row("t", {}, 0, 0)), HasSubstr("0 axes"));
  EXPECT_THAT(with(Row("t", {1, 1, 1, 1, 1}, 0, 0)), HasSubstr("5 axes"));
  EXPECT_THAT(with(Row("t", {0}, 0, 0)), HasSubstr("an axis of 0 elements"));
  EXPECT_THAT(with(Row("t", {uint64_t{1} << 63}, 0, 0)), HasSubstr("an axis of"));
  EXPECT_THAT(with(Row("t", {uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0)), HasSubstr("too many elements"));
  EXPECT_THAT(with(Row("t", {uint64_t{1} << 62}, 0, 0)), HasSubstr("too many elements"));  // × 4 bytes
  EXPECT_THAT(with(Row("t", {4}, 4, 0)), HasSubstr("unknown type 4"));
  EXPECT_THAT(with(Row("t", {4}, 0xffffffff, 0)), HasSubstr("unknown type 4294967295"));
  EXPECT_THAT(with(Row("t", {40}, 8, 0)), HasSubstr("not whole blocks of 32 (Q8_0)"));
  EXPECT_THAT(with(Row("t", {4}, 0, 4)), HasSubstr("no multiple of the alignment 32"));
  EXPECT_THAT(with(Row("t", {32}, 0, 0)), HasSubstr("needs 128 bytes at 0, the file has 64"));
  EXPECT_THAT(with(Row("t", {4}, 0, 32)), HasSubstr("bytes 0 to 32 of the data"));
  EXPECT_THAT(with(Row("t", {4}, 0, uint64_t{0} - 32)), HasSubstr("belong to no tensor"));
  EXPECT_THAT(with(Row("t", {4}, 0, 0)), HasSubstr("at the end belong to no tensor"));
  EXPECT_THAT(with(Row(std::string(65, 'x'), {4}, 0, 0)), HasSubstr("the name of a tensor claims 65 bytes"));
  EXPECT_EQ(with(Row("t", {16}, 0, 0)), "no error");
}

TEST(Gguf, RefusesOverlapAndTwins) {
  const auto with = [](const std::string& rows) { return ErrorOf(Aligned(Head(2, 0) + rows) + std::string(64, '\0')); };
  EXPECT_EQ(with(Row("a", {8}, 0, 32) + Row("b", {8}, 0, 0)), "no error");
  EXPECT_THAT(with(Row("a", {9}, 0, 0) + Row("b", {8}, 0, 32)),
              HasSubstr("'b' begins at 32 and overlaps that of tensor 'a'"));
  EXPECT_THAT(with(Row("a", {8}, 0, 0) + Row("a", {8}, 0, 32)), HasSubstr("two tensors named 'a'"));
}

TEST(Gguf, EveryTruncationIsFound) {
  const std::string good = GoodFile();
  const std::string unpadded = good.substr(0, good.size() - (32 - 136 % 32) % 32);  // the last padding is optional
  EXPECT_EQ(ErrorOf(unpadded), "no error");
  for (size_t size = 0; size < unpadded.size(); ++size)
    ASSERT_NE(ErrorOf(unpadded.substr(0, size)), "no error") << size;
}

TEST(Gguf, AnyByteMayChange) {
  // Content or an error, and every view inside the file.
  const std::string good = GoodFile();
  const size_t header = good.size() - 32 - 160;
  for (size_t i = 0; i < header; ++i) {
    for (const uint8_t flip : {0x01, 0x80, 0xff}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      try {
        const GgufContent content = Parse(bad);
        for (const GgufTensor& tensor : content.tensors()) {
          const char* begin = reinterpret_cast<const char*>(tensor.bytes.data());
          ASSERT_GE(begin, bad.data());
          ASSERT_LE(begin + tensor.bytes.size(), bad.data() + bad.size());
        }
      } catch (const Error&) {
      }
    }
  }
}

TEST(GgufWriter, RefusesWhatTheFormatCannotHold) {
  GgufWriter writer([](std::span<const std::byte>) {});
  writer.U32("k", 1);
  EXPECT_THROW(writer.U32("k", 1), Error);
  EXPECT_THROW(writer.Tensor("", GgmlType::kF32, std::vector<int64_t>{1}), Error);
  EXPECT_THROW(writer.Tensor(std::string(64, 'x'), GgmlType::kF32, std::vector<int64_t>{1}), Error);
  EXPECT_THROW(writer.Tensor("t", GgmlType::kQ8_0, std::vector<int64_t>{2, 33}), Error);
  EXPECT_THROW(writer.Tensor("t", GgmlType::kF32, std::vector<int64_t>{1, 1, 1, 1, 1}), Error);
  EXPECT_THROW(writer.Tensor("t", GgmlType::kF32, std::vector<int64_t>{0}), Error);
  writer.Tensor("t", GgmlType::kF32, std::vector<int64_t>{1});
  EXPECT_THROW(writer.Tensor("t", GgmlType::kF32, std::vector<int64_t>{1}), Error);
}

}  // namespace
}  // namespace octavo
