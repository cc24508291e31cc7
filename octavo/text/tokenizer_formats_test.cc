// The other files that hold tokenizers: tiktoken ranks, GGUF vocabularies, SentencePiece models, and folders of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "octavo/base/error_test_support.h"
#include "octavo/base/temp_folder.h"
#include "octavo/text/chat_template_files.h"
#include "octavo/text/gguf_vocab_file.h"
#include "octavo/text/gguf_vocab_pre.h"
#include "octavo/text/pretokenizer_scan.h"
#include "octavo/text/regex.h"
#include "octavo/text/sentencepiece.h"
#include "octavo/text/stream_decoder.h"
#include "octavo/text/tiktoken.h"
#include "octavo/text/tokenizer_bytechars.h"
#include "octavo/text/tokenizer_test_data.h"

namespace octavo::text {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

template <typename Load>
std::string FileErrorOf(Load load) {
  return ErrorText(ErrorCode::kFile, load);
}

std::string Base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    for (size_t j = 0; j < 3; ++j)
      word = word << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) out += i + j <= bytes.size() ? kDigits[word >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

TrainedBpe TrainSmall(const std::string& pattern) {
  BpeTrainerOptions options;
  options.vocabulary_size = 340;
  options.pattern = pattern;
  options.special_tokens = {};
  ThreadPool pool(1);
  const std::string_view texts[] = {kTrainingText, kTrainingText};
  return TrainBpe(texts, options, pool);
}

std::string RankFile(const TrainedBpe& trained) {
  std::string file;
  for (size_t id = 0; id < trained.tokens.size(); ++id) file += fmt::format("{} {}\n", Base64(trained.tokens[id]), id);
  return file;
}

TiktokenEncoding SmallEncoding() {
  return {"small", std::string(kLlama3Pattern), {{"<|bos|>", 400}, {"<|eos|>", 401}}, "<|bos|>", "<|eos|>", true};
}

TEST(Tiktoken, RanksGiveTheIdsOfTheirMerges) {
  const TrainedBpe trained = TrainSmall("llama3");
  const auto ranks = ParseTiktoken(RankFile(trained), "ranks", SmallEncoding());
  const auto merges = ParseTokenizerJson(TokenizerJson(trained), "merges");
  RandomText random(31);
  for (int i = 0; i < 3000; ++i) {
    const std::string text =
        random.Next() + std::string(kTrainingText.substr(random.Below(100), 20 + random.Below(50)));
    // The text may be cut inside a character: both see the same then.
    ASSERT_EQ(ranks->Encode(text), merges->Encode(text)) << text;
    ASSERT_EQ(ranks->Decode(ranks->Encode(text)), ReplaceInvalidUtf8(text));
  }
  EXPECT_EQ(ranks->Encode("a", {.add_special = true})[0], 400);
  EXPECT_EQ(ranks->roles().eos, 401);
  EXPECT_THAT(ranks->Encode("<|eos|>"), Not(Contains(401)));
  EXPECT_THAT(ranks->Encode("<|eos|>", {.parse_special = true}), ElementsAre(401));
}

TEST(Tiktoken, KnownEncodingsBySize) {
  for (size_t size : {50256, 50280, 100256, 128000, 151643, 199998}) {
    const auto encoding = TiktokenEncodingBySize(size);
    ASSERT_TRUE(encoding) << size;
    EXPECT_NE(FindWordScanner(encoding->pattern), nullptr) << encoding->name;
    for (const auto& [token, id] : encoding->special) EXPECT_GE(id, 50256) << token;
  }
  EXPECT_EQ(TiktokenEncodingBySize(128000)->special.size(), 256u);
  EXPECT_FALSE(TiktokenEncodingBySize(7));
}

TEST(Tiktoken, MalformedRanks) {
  const std::string good = RankFile(TrainSmall("llama3"));
  const auto error = [](const std::string& file) {
    return FileErrorOf([&] { ParseTiktoken(file, "ranks", SmallEncoding()); });
  };
  EXPECT_EQ(error(good), "no error");
  EXPECT_TRUE(LooksLikeTiktoken(good));
  EXPECT_FALSE(LooksLikeTiktoken("{}"));
  EXPECT_THAT(error(good + "YQ\n"), HasSubstr("expected base64, a space and a rank"));
  EXPECT_THAT(error(good + "!!! 7\n"), HasSubstr("expected base64"));
  EXPECT_THAT(error(good + "YWJjZA== -7\n"), HasSubstr("expected base64"));
  EXPECT_THAT(error(good + "YWJjZGVmZ2g= 99999999999\n"), HasSubstr("expected base64"));
  EXPECT_THAT(error(good + "YWJjZGVmZ2hpag== 4194304\n"), HasSubstr("has id 4194304"));
  EXPECT_THAT(error(good + "YWJjZGVmZ2hpag== 5\n"), HasSubstr("same id 5"));
  EXPECT_THAT(error(good + "YQ== 999\n"), HasSubstr("the same bytes twice"));
  EXPECT_THAT(error(good.substr(good.find('\n') + 1)), HasSubstr("has no rank"));
  EXPECT_THAT(error(good + Base64(std::string(5000, 'x')) + " 4000\n"), HasSubstr("5000 bytes"));
  EXPECT_THAT(FileErrorOf([&] { ParseTiktoken(good, "ranks"); }), HasSubstr("none of the known encodings"));
}

GgufVocabulary SmallGguf(const TrainedBpe& trained) {
  GgufVocabulary gguf;
  gguf.model = "gpt2";
  gguf.pre = "llama-bpe";
  for (const std::string& token : trained.tokens) gguf.tokens.push_back(BytesToChars(token));
  gguf.types.assign(gguf.tokens.size(), 1);
  for (const auto& [left, right] : trained.merges) {
    gguf.merges.push_back(gguf.tokens[static_cast<size_t>(left)] + " " + gguf.tokens[static_cast<size_t>(right)]);
  }
  gguf.tokens.insert(gguf.tokens.end(), {"<|bos|>", "<|eot|>", "<tool>"});
  gguf.types.insert(gguf.types.end(), {3, 3, 4});
  gguf.bos_id = 340;
  gguf.eos_id = 341;
  gguf.chat_template = "{{ bos_token }}{{ messages[0].content }}";
  return gguf;
}

// Writes the keys of a GGUF file, no tensors.
class GgufWriter {
 public:
  GgufWriter() : bytes_("GGUF") {
    Number<uint32_t>(3);
    Number<uint64_t>(0);
    Number<uint64_t>(0);
  }
  template <typename T>
  void Number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void Text(std::string_view text) {
    Number<uint64_t>(text.size());
    bytes_ += text;
  }
  void Key(std::string_view key, uint32_t type) {
    Text(key);
    Number(type);
    const uint64_t keys = ++keys_;
    std::memcpy(bytes_.data() + 16, &keys, sizeof keys);
  }
  void String(std::string_view key, std::string_view value) {
    Key(key, 8);
    Text(value);
  }
  void Strings(std::string_view key, const std::vector<std::string>& values) {
    Key(key, 9);
    Number<uint32_t>(8);
    Number<uint64_t>(values.size());
    for (const std::string& value : values) Text(value);
  }
  template <typename T>
  void Numbers(std::string_view key, uint32_t type, const std::vector<T>& values) {
    Key(key, 9);
    Number(type);
    Number<uint64_t>(values.size());
    for (T value : values) Number(value);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  uint64_t keys_ = 0;
};

std::string GgufFile(const GgufVocabulary& gguf) {
  GgufWriter file;
  file.String("general.architecture", "llama");
  file.Numbers<float>("general.floats", 6, {1, 2, 3});
  file.Strings("general.tags", {"a", "b"});
  file.String("tokenizer.ggml.model", gguf.model);
  file.String("tokenizer.ggml.pre", gguf.pre);
  file.Strings("tokenizer.ggml.tokens", gguf.tokens);
  if (!gguf.scores.empty()) file.Numbers("tokenizer.ggml.scores", 6, gguf.scores);
  file.Numbers("tokenizer.ggml.token_type", 5, gguf.types);
  file.Strings("tokenizer.ggml.merges", gguf.merges);
  file.Key("tokenizer.ggml.bos_token_id", 4);
  file.Number(static_cast<uint32_t>(*gguf.bos_id));
  file.Key("tokenizer.ggml.eos_token_id", 4);
  file.Number(static_cast<uint32_t>(*gguf.eos_id));
  file.Key("tokenizer.ggml.add_bos_token", 7);
  file.Number<uint8_t>(1);
  file.String("tokenizer.chat_template", gguf.chat_template);
  return file.bytes();
}

TEST(Gguf, FilesGiveTheIdsOfTheirVocabulary) {
  const TrainedBpe trained = TrainSmall("llama3");
  const TempFolder folder;
  const std::filesystem::path path = folder / "model.gguf";
  std::ofstream(path, std::ios::binary) << GgufFile(SmallGguf(trained));
  const auto tokenizer = LoadTokenizer(path.string());
  const auto expected = ParseTokenizerJson(TokenizerJson(trained), "merges");
  RandomText random(32);
  for (int i = 0; i < 1000; ++i) {
    const std::string text = random.Next();
    ASSERT_EQ(tokenizer->Encode(text), expected->Encode(text)) << text;
  }
  EXPECT_EQ(tokenizer->Encode("a", {.add_special = true})[0], 340);
  EXPECT_EQ(tokenizer->roles().eos, 341);
  EXPECT_THAT(tokenizer->Encode("<|eot|>"), Not(Contains(341)));
  EXPECT_THAT(tokenizer->Encode("<tool>"), ElementsAre(342));  // user defined: text like any other
  EXPECT_FALSE(tokenizer->IsSpecial(342));
  // The folder finds it too, and its template.
  EXPECT_EQ(LoadTokenizer(folder.path().string())->vocabulary_size(), 343);
  const ChatTemplateFiles files = ReadChatTemplateFiles(path);
  EXPECT_EQ(files.Choose(false), "{{ bos_token }}{{ messages[0].content }}");
  EXPECT_EQ(files.special_tokens.at("bos_token"), "<|bos|>");
}

TEST(Gguf, MalformedVocabularies) {
  const GgufVocabulary good = SmallGguf(TrainSmall("llama3"));
  const auto error = [&](const std::function<void(GgufVocabulary&)>& change) {
    GgufVocabulary gguf = good;
    change(gguf);
    return FileErrorOf([&] { MakeGgufTokenizer(gguf, "g"); });
  };
  EXPECT_EQ(error([](GgufVocabulary&) {}), "no error");
  EXPECT_THAT(error([](GgufVocabulary& g) { g.tokens.clear(); }), HasSubstr("0 tokens"));
  EXPECT_THAT(error([](GgufVocabulary& g) { g.types.pop_back(); }), HasSubstr("343 tokens but 342 token types"));
  EXPECT_THAT(error([](GgufVocabulary& g) { g.scores = {1}; }), HasSubstr("343 tokens but 1 scores"));
  EXPECT_THAT(error([](GgufVocabulary& g) { g.types[3] = -5; }), HasSubstr("token 3 has type -5"));
  EXPECT_THAT(error([](GgufVocabulary& g) { g.tokens[3].assign(1, static_cast<char>(0xFF)); }),
              HasSubstr("token 3 is not UTF-8"));
  EXPECT_THAT(error([](GgufVocabulary& g) { g.merges[0] = "zz yy"; }), HasSubstr("is not in the vocabulary"));
  EXPECT_THAT(error([](GgufVocabulary& g) { g.merges[0] = "zz"; }), HasSubstr("is not two tokens"));
  EXPECT_THAT(error([](GgufVocabulary& g) { g.bos_id = 343; }), HasSubstr("BOS token id 343 is outside"));
  EXPECT_EQ(error([](GgufVocabulary& g) { g.bos_id = -1; }), "no error");
  EXPECT_THAT(error([](GgufVocabulary& g) { g.model = "rwkv"; }), HasSubstr("known: gpt2 llama t5"));
  EXPECT_THAT(error([](GgufVocabulary& g) { g.pre = "no such"; }), HasSubstr("no such"));
  EXPECT_THAT(error([](GgufVocabulary& g) { g.model = "llama"; }), HasSubstr("needs scores"));
}

TEST(Gguf, DamagedFiles) {
  const std::string good = GgufFile(SmallGguf(TrainSmall("llama3")));
  const auto read = [](const std::string& bytes) {
    return FileErrorOf([&] { MakeGgufTokenizer(ReadGgufVocabulary(bytes, "g"), "g"); });
  };
  EXPECT_EQ(read(good), "no error");
  for (size_t size = 0; size < good.size(); size += 1 + size / 50)
    EXPECT_NE(read(good.substr(0, size)), "no error") << size;
  RandomText random(33);
  for (int i = 0; i < 2000; ++i) {
    std::string bad = good;
    const size_t at = random.Below(bad.size());
    for (size_t j = 0; j < 8 && at + j < bad.size(); ++j)
      bad[at + j] = static_cast<char>(i % 2 == 0 ? 0xFF : random.Below(256));
    read(bad);
  }
  GgufWriter huge;
  huge.Key("tokenizer.ggml.tokens", 9);
  huge.Number<uint32_t>(8);
  huge.Number<uint64_t>(uint64_t{1} << 60);
  EXPECT_THAT(read(huge.bytes()), HasSubstr("claims 1152921504606846976 elements"));
  GgufWriter nested;
  nested.Key("x", 9);
  nested.Number<uint32_t>(9);
  nested.Number<uint64_t>(1);
  EXPECT_THAT(read(nested.bytes()), HasSubstr("an array of 1 values of type 9"));
  GgufWriter twice;
  twice.String("a", "b");
  twice.String("a", "b");
  EXPECT_THAT(read(twice.bytes()), HasSubstr("comes twice"));
  EXPECT_THAT(read(GgufWriter().bytes()), HasSubstr("no tokenizer in the GGUF file"));
  for (const char* none : {"none", "no_vocab"}) {
    GgufWriter without;
    without.String("tokenizer.ggml.model", none);
    EXPECT_THAT(read(without.bytes()), HasSubstr("no tokenizer in the GGUF file")) << none;
  }
}

// A Unigram model with every type of piece.
SentencePieceModel SmallUnigram() {
  SentencePieceModel model;
  model.byte_fallback = true;
  model.pieces = {{"<unk>", 0, PieceType::kUnknown}, {"<s>", 0, PieceType::kControl}, {"</s>", 0, PieceType::kControl}};
  for (int byte = 0; byte < 256; ++byte) model.pieces.push_back({fmt::format("<0x{:02X}>", byte), 0, PieceType::kByte});
  for (const auto& [text, score] : std::vector<std::pair<std::string, float>>{{"\xE2\x96\x81", -2},
                                                                              {"a", -3},
                                                                              {"b", -4},
                                                                              {"ab", -3.5},
                                                                              {"\xE2\x96\x81"
                                                                               "ab",
                                                                               -5},
                                                                              {"c", -6}}) {
    model.pieces.push_back({text, score, PieceType::kNormal});
  }
  model.pieces.push_back({"<tool>", 0, PieceType::kUserDefined});
  return model;
}

TEST(SentencePiece, PiecesBytesAndControl) {
  const auto tokenizer = MakeSentencePiece(SmallUnigram(), "m");
  EXPECT_THAT(tokenizer->Encode("ab"), ElementsAre(263));
  EXPECT_THAT(tokenizer->Encode("ab", {.add_special = true}), ElementsAre(1, 263));
  EXPECT_THAT(tokenizer->Encode("aé"), ElementsAre(259, 260, 3 + 0xC3, 3 + 0xA9));
  EXPECT_THAT(tokenizer->Encode("<s>"), Not(Contains(1)));
  EXPECT_THAT(tokenizer->Encode("<s>ab", {.parse_special = true}), ElementsAre(1, 263));
  EXPECT_THAT(tokenizer->Encode("c<tool>"), ElementsAre(259, 264, 265));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("ab é ab")), "ab é ab");
  StreamDecoder stream(*tokenizer);
  EXPECT_EQ(stream.Push(263), "ab");
  EXPECT_EQ(stream.Push(3 + 0xC3), "");
  EXPECT_EQ(stream.Push(3 + 0xA9), "é");
  EXPECT_EQ(stream.Push(3 + 0xC3), "");
  EXPECT_EQ(stream.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(tokenizer->roles().unknown, 0);
}

// Every pre-tokenizer that a file may name compiles and loses nothing, long runs included (the bench times them).
TEST(Gguf, EveryPreTokenizerWorks) {
  GgufVocabulary gguf = SmallGguf(TrainSmall("llama3"));
  RandomText random(35);
  for (const std::string& pre : GgufPreNames()) {
    gguf.pre = pre;
    const auto tokenizer = MakeGgufTokenizer(gguf, pre);
    for (int i = 0; i < 100; ++i) {
      const std::string text = random.Next();
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text) << pre;
    }
    for (const char* unit : {"a", " ", "1", "!", "日"}) {
      std::string run;
      for (int i = 0; i < 100'000; ++i) run += unit;
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(run)), run) << pre << " '" << unit << "'";
    }
  }
  // DeepSeek's letters hold the Kelvin sign and the omega with oxia, not their normalized twins in a range.
  const Regex letters(FindGgufPre("deepseek-llm", "g").patterns[1]);
  RegexScratch scratch;
  std::vector<size_t> ends;
  letters.FindAll("a\u212Ab\u1F7Dc[d\u4E00", scratch, [&](size_t, size_t end) { ends.push_back(end); });
  EXPECT_THAT(ends, ElementsAre(9, 11));
}

// A GGUF vocabulary of pieces, with roles that it names, leaves out or denies.
TEST(Gguf, PiecesAndTheirRoles) {
  GgufVocabulary gguf;
  gguf.model = "llama";
  for (const SentencePieceModel::Piece& piece : SmallUnigram().pieces) {
    gguf.tokens.push_back(piece.text);
    gguf.scores.push_back(piece.score);
    gguf.types.push_back(static_cast<int32_t>(piece.type));
  }
  const auto encode = [&] { return MakeGgufTokenizer(gguf, "g")->EncodeWithOffsets("c", {.add_special = true}).ids; };
  EXPECT_THAT(encode(), ElementsAre(1, 259, 264));  // BOS is 1 unless the file says otherwise
  gguf.add_eos = true;
  EXPECT_THAT(encode(), ElementsAre(1, 259, 264, 2));
  gguf.bos_id = gguf.eos_id = -1;
  EXPECT_THAT(encode(), ElementsAre(259, 264));
  gguf.bos_id = 262;
  EXPECT_THAT(encode(), ElementsAre(262, 259, 264));
}

TEST(SentencePiece, MalformedModels) {
  const auto error = [](const std::function<void(SentencePieceModel&)>& change) {
    SentencePieceModel model = SmallUnigram();
    change(model);
    return FileErrorOf([&] { MakeSentencePiece(model, "m"); });
  };
  EXPECT_EQ(error([](SentencePieceModel&) {}), "no error");
  EXPECT_THAT(error([](SentencePieceModel& m) { m.pieces.clear(); }), HasSubstr("it has no pieces"));
  EXPECT_THAT(error([](SentencePieceModel& m) { m.pieces[260].text.clear(); }), HasSubstr("piece 260 has 0 bytes"));
  EXPECT_THAT(error([](SentencePieceModel& m) { m.pieces[260].text.assign(1, static_cast<char>(0xC3)); }),
              HasSubstr("piece 260 is not UTF-8"));
  EXPECT_THAT(error([](SentencePieceModel& m) { m.pieces[260].score = 1.0f / 0.0f; }), HasSubstr("no finite score"));
  EXPECT_NE(error([](SentencePieceModel& m) { m.pieces[3].text = "<0x-1>"; }), "no error");
  EXPECT_NE(error([](SentencePieceModel& m) { m.pieces[261].text.assign(1, 'a'); }), "no error");  // twice
  EXPECT_THAT(error([](SentencePieceModel& m) { m.charsmap = "xyz"; }), HasSubstr("too short"));
  std::string long_replacement(4, '\0');
  const uint32_t trie = 4;
  std::memcpy(long_replacement.data(), &trie, 4);
  long_replacement += std::string(4, '\0') + std::string(1000, 'x') + std::string(1, '\0');
  EXPECT_THAT(error([&](SentencePieceModel& m) { m.charsmap = long_replacement; }),
              HasSubstr("a replacement of 1000 bytes"));
  const std::string good = ReadTestFile(GoldenPath("tokenizers/spm_bpe/tokenizer.model"));
  RandomText random(34);
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    if (i % 3 == 0) {
      bad.resize(random.Below(bad.size()));
    } else {
      for (int j = 0; j < 3; ++j) bad[random.Below(bad.size())] = static_cast<char>(random.Below(256));
    }
    try {
      ParseSentencePiece(bad, "bad")->Encode("Hello world");
    } catch (const Error&) {
    }
  }
}

TEST(TokenizerFiles, AFolderSaysWhichAndWithWhat) {
  const TempFolder folder;
  EXPECT_THAT(FileErrorOf([&] { LoadTokenizer(folder.path().string()); }),
              HasSubstr("no tokenizer.json, tokenizer.model or tiktoken file beside"));
  EXPECT_THAT(FileErrorOf([&] { LoadTokenizer((folder / "none").string()); }), HasSubstr("none"));
  std::ofstream(folder / "tokenizer.model", std::ios::binary) << WriteSentencePieceModel(SmallUnigram());
  std::ofstream(folder / "tokenizer_config.json") << R"({"add_bos_token": false, "add_eos_token": true,
    "pad_token": {"content": "</s>"},
    "added_tokens_decoder": {"266": {"content": "<|im_end|>", "special": true}, "0": {"content": "<unk>"}}})";
  const auto tokenizer = LoadTokenizer(folder.path().string());
  EXPECT_THAT(tokenizer->Encode("ab", {.add_special = true}), ElementsAre(263, 2));
  EXPECT_THAT(tokenizer->Encode("ab<|im_end|>", {.parse_special = true}), ElementsAre(263, 266));
  EXPECT_EQ(tokenizer->roles().pad, 2);
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{263, 266}), "ab<|im_end|>");
  std::ofstream(folder / "tokenizer_config.json") << R"({"added_tokens_decoder": {"-4": {"content": "x"}}})";
  EXPECT_THAT(FileErrorOf([&] { LoadTokenizer(folder.path().string()); }), HasSubstr("'-4' is no token id"));
  std::ofstream(folder / "tokenizer_config.json") << "{";
  EXPECT_THAT(FileErrorOf([&] { LoadTokenizer(folder.path().string()); }),
              HasSubstr("tokenizer_config.json: not valid JSON"));
  std::ofstream(folder / "tokenizer_config.json") << "{}";
  std::ofstream(folder / "tokenizer.json") << TrainedJson("llama3");  // comes first
  EXPECT_EQ(LoadTokenizer(folder.path().string())->vocabulary_size(), 340);
  EXPECT_EQ(LoadTokenizer("bytes")->vocabulary_size(), 258);
}

}  // namespace
}  // namespace octavo::text
