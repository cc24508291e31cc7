#include "octavo/data/token_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "octavo/data/data_test_support.h"

namespace octavo::data {
namespace {

template <typename T>
std::string Raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string Llmc(const std::vector<uint16_t>& tokens, int32_t magic = 20240520, int32_t version = 1) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<int32_t>(tokens.size());
  return Raw(header) + Raw(tokens);
}

std::string Npy(const std::string& descr, const std::string& shape, const std::string& data) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr, shape);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size() & 255) +
         static_cast<char>(header.size() >> 8) + header + data;
}

std::string BinError(const std::string& bytes, std::string_view format = "auto") {
  return ErrorText(5, [&] { ReadTokenBin(std::as_bytes(std::span(bytes)), format, "a.bin"); });
}
std::string NpyError(const std::string& bytes) {
  return ErrorText(5, [&] { ReadTokenNpy(std::as_bytes(std::span(bytes)), "a.npy"); });
}

TEST(TokenFile, ReadsEveryForm) {
  const std::vector<uint16_t> tokens = {5, 65535, 7};
  const std::string llmc = Llmc(tokens), raw = Raw(tokens);
  for (const std::string* bytes : {&llmc, &raw}) {
    const TokenView view = ReadTokenBin(std::as_bytes(std::span(*bytes)), "auto", "a.bin");
    ASSERT_EQ(view.size(), 3);
    EXPECT_EQ(view.At(1), 65535);
    EXPECT_EQ(view.At(2), 7);
  }
  const std::string u4 = Npy("<u4", "(2,)", Raw(std::vector<uint32_t>{1, 4000000000u}));
  EXPECT_EQ(ReadTokenNpy(std::as_bytes(std::span(u4)), "a").At(1), 4000000000);
  const std::string i8 = Npy("<i8", "(2,)", Raw(std::vector<int64_t>{-1, int64_t{1} << 40}));
  EXPECT_EQ(ReadTokenNpy(std::as_bytes(std::span(i8)), "a").At(0), -1);
  EXPECT_EQ(ReadTokenNpy(std::as_bytes(std::span(i8)), "a").At(1), int64_t{1} << 40);
  const std::string i4 = Npy("<i4", "(1,)", Raw(std::vector<int32_t>{77})), u2 = Npy("<u2", "(3,)", raw);
  EXPECT_EQ(ReadTokenNpy(std::as_bytes(std::span(i4)), "a").At(0), 77);
  EXPECT_EQ(ReadTokenNpy(std::as_bytes(std::span(u2)), "a").At(0), 5);
}

TEST(TokenFile, MalformedHeadersAreErrors) {
  const std::string good = Llmc({1, 2, 3});
  EXPECT_EQ(BinError(good.substr(0, good.size() - 1)),
            "a.bin: its header says 3 tokens, 1030 bytes in all, but it has 1029\nthe file is truncated");
  EXPECT_EQ(BinError(good + "xx"),
            "a.bin: its header says 3 tokens, 1030 bytes in all, but it has 1032\n"
            "the file was written to after its header");
  EXPECT_EQ(BinError(Llmc({1, 2}, 20240520, 3)), "a.bin: version 3 of llm.c's format, expected 1");
  EXPECT_EQ(BinError(Llmc({1, 2}, 12345, 1), "llmc"),
            "a.bin: magic number 12345, expected 20240520 or 20240801\n"
            "a file of bare uint16 is token_format=nanogpt");
  EXPECT_EQ(BinError("abc"),
            "a.bin: 3 bytes, an odd number, cannot be uint16 tokens\nthe file is truncated, or not a file of tokens");
  EXPECT_EQ(BinError("ab", "llmc"), "a.bin: 2 bytes, but the header of llm.c alone has 1024");
  EXPECT_EQ(BinError(std::string("PK\x03\x04", 4)), "a.bin is a zip archive (PyTorch weights?), not a file of tokens");
  EXPECT_EQ(NpyError("hello there, numpy"), "a.npy does not begin like a .npy file");
  EXPECT_EQ(
      NpyError(Npy("<f4", "(1,)", "abcd")),
      "a.npy: dtype '<f4', expected '<u2', '<u4', '<i4' or '<i8'\nsave tokens with numpy: tokens.astype('uint16')");
  EXPECT_EQ(NpyError(Npy(">u2", "(2,)", "abcd")).substr(0, 19), "a.npy: dtype '>u2',");
  EXPECT_EQ(NpyError(Npy("<u2", "(1, 2)", "abcd")),
            "a.npy: shape (1, 2), expected one dimension\nsave tokens.reshape(-1)");
  EXPECT_EQ(NpyError(Npy("<u2", "(3,)", "abcd")), "a.npy: its header says 3 tokens, the file has room for 2");
  EXPECT_EQ(NpyError(Npy("<u2", "(1,)", "abcd")), "a.npy: its header says 1 tokens, the file has room for 2");
  EXPECT_EQ(NpyError(Npy("<u2", "(4611686018427387905,)", "ab")),
            "a.npy: its header says 4611686018427387905 tokens, the file has room for 1");
  EXPECT_EQ(NpyError(Npy("<u2", "(-1,)", "ab")).substr(0, 18), "a.npy: shape (-1,)");
  const std::string whole = Npy("<u2", "(2,)", "abcd");
  for (size_t cut = 0; cut < whole.size(); ++cut) EXPECT_NE(NpyError(whole.substr(0, cut)), "no error") << cut;
}

TEST(TokenFile, WindowsShareOneToken) {
  DataFolder folder;
  std::vector<uint16_t> tokens(23);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i);
  const std::string file = folder.Write("a.bin", Llmc(tokens));
  const Settings settings = SettingsOf({"data_files=" + file, "enable_data_shuffling=false", "data_repeat=false"});
  const auto source = OpenTrainData(settings, {2, 8, 100});
  const Batch first = source->Next(), second = source->Next();
  EXPECT_EQ(first.inputs.ToVector<int32_t>(),
            (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(first.targets.ToVector<int32_t>(),
            (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}));
  EXPECT_EQ(TargetWeights(second), 6);  // 22 targets in all
  EXPECT_TRUE(source->Done());
}

TEST(TokenFile, ADocumentEndsWithItsId) {
  DataFolder folder;
  const std::string file = folder.Write("a.bin", Raw(std::vector<uint16_t>{1, 2, 9, 3, 4, 9, 5, 6}));
  const Settings settings =
      SettingsOf({"data_files=" + file, "enable_data_shuffling=false", "data_repeat=false", "token_document_id=9"});
  const auto pieces = PiecesOf(OpenTrainData(settings, {1, 8, 10})->Next());
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].targets, (std::vector<int32_t>{2, 9}));
  EXPECT_EQ(pieces[1].inputs, (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(pieces[2].targets, (std::vector<int32_t>{6}));
}

TEST(TokenFile, IdsOutsideTheVocabularyNameTheirPlace) {
  DataFolder folder;
  const std::string file = folder.Write("a.bin", Raw(std::vector<uint16_t>{1, 2, 50256, 3}));
  EXPECT_EQ(ErrorText(2,
                      [&] {
                        OpenTrainData(SettingsOf({"data_files=" + file}), {1, 8, 32000})->Next();
                      }),
            file +
                ": token 2 is 50256, but vocab_size=32000\n"
                "use vocab_size=50257 or more: that of the tokenizer that made the file");
  const std::string negative = folder.Write("b.npy", Npy("<i4", "(2,)", Raw(std::vector<int32_t>{1, -5})));
  EXPECT_EQ(ErrorText(2,
                      [&] {
                        OpenTrainData(SettingsOf({"data_files=" + negative}), {1, 8, 32000})->Next();
                      }),
            negative +
                ": token 1 is -5, but vocab_size=32000\n"
                "token ids are never negative: is this a file of tokens?");
}

}  // namespace
}  // namespace octavo::data
