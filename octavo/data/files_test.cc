// Files as users have them: formats, compression, and what is wrong with them.
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <cstring>

#include "octavo/data/data_test_support.h"
#include "octavo/data/file_list.h"
#include "octavo/data/plain_file.h"

namespace octavo::data {
namespace {

std::string Gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<unsigned>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<unsigned>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// Text that does not fit into one buffer of the unpacker.
std::string LongText() {
  std::string text;
  for (int i = 0; text.size() < 700'000; ++i) text += fmt::format("line {} {}\n", i, i * i % 977);
  return text;
}

class DataFiles : public testing::Test {
 protected:
  std::string OpenError(int code, std::vector<std::string> words, int64_t vocab_size = 258) {
    return ErrorText(code, [&] {
      const Settings settings = SettingsOf(words);
      OpenTrainData(settings, {1, 64, vocab_size})->Next();
    });
  }
  std::string FileError(const std::string& name, const std::string& bytes) {
    std::string text = OpenError(5, {"data_files=" + folder_.Write(name, bytes), "tokenizer_path=bytes"});
    const size_t at = text.find(folder_.Path(name));
    if (at != std::string::npos) text.replace(at, folder_.Path(name).size(), name);
    return text;
  }
  DataFolder folder_;
};

TEST_F(DataFiles, CompressedFilesAreTheirContent) {
  const std::string text = LongText();
  for (const auto& [name, bytes] :
       std::map<std::string, std::string>{{"a.txt.gz", Gzip(text)},
                                          {"b.txt.zst", Zstd(text)},
                                          {"c.txt", text},
                                          {"d.txt.gz", Gzip(text.substr(0, 300'000)) + Gzip(text.substr(300'000))},
                                          {"e.txt.zst", Zstd(text.substr(0, 300'000)) + Zstd(text.substr(300'000))}}) {
    const PlainFile file(folder_.Write(name, bytes));
    EXPECT_TRUE(file.text() == text) << name;
    EXPECT_EQ(file.extension(), ".txt");
  }
}

TEST_F(DataFiles, DamagedCompressionIsNamed) {
  const std::string text = LongText(), gz = Gzip(text), zst = Zstd(text);
  EXPECT_EQ(FileError("a.txt.gz", gz.substr(0, gz.size() / 2)).substr(0, 24), "a.txt.gz ends in the mid");
  EXPECT_EQ(FileError("a.txt.zst", zst.substr(0, zst.size() / 2)).substr(0, 24), "a.txt.zst ends in the mi");
  EXPECT_EQ(FileError("b.txt.gz", "not gzip at all").substr(0, 22), "b.txt.gz is damaged ne");
  EXPECT_EQ(FileError("b.txt.zst", "not zstd at all").substr(0, 22), "b.txt.zst is damaged n");
  std::string flipped = gz;
  flipped[gz.size() / 2] = static_cast<char>(flipped[gz.size() / 2] ^ 0x10);
  EXPECT_EQ(FileError("c.txt.gz", flipped).substr(0, 22), "c.txt.gz is damaged ne");
  EXPECT_EQ(FileError("d.txt.gz", Gzip("")), "d.txt.gz is empty when unpacked");
  EXPECT_EQ(FileError("e.txt.gz", gz + "xyz").substr(0, 22), "e.txt.gz is damaged ne");
  for (size_t cut = 0; cut < 40; ++cut) {  // in headers too
    EXPECT_THROW(PlainFile(folder_.Write("f.txt.gz", gz.substr(0, cut))), Error) << cut;
    EXPECT_THROW(PlainFile(folder_.Write("f.txt.zst", zst.substr(0, cut))), Error) << cut;
  }
}

TEST_F(DataFiles, MalformedTextIsNamedWithItsPlace) {
  EXPECT_EQ(FileError("empty.txt", ""), "empty.txt is empty\nexpected text, JSON lines or tokens");
  EXPECT_EQ(FileError("blank.txt", " \n\n \n"), "blank.txt holds no document, only blanks");
  EXPECT_EQ(FileError("a.jsonl", "{\"text\": \"x\"\n"),
            "a.jsonl:1: bad JSON at column 13\nexpected one object per line: {\"text\": \"…\"}");
  EXPECT_EQ(FileError("b.jsonl", "\n[1]\n"),
            "b.jsonl:2: not a JSON object\nexpected one object per line: {\"text\": \"…\"}");
  EXPECT_EQ(FileError("c.jsonl", "{\"content\": \"x\", \"id\": 3}\n"),
            "c.jsonl:1: no field 'text'\nfound 'content', 'id'; name yours with train_data_columns=NAME");
  EXPECT_EQ(FileError("d.jsonl", "{\"text\": 3}\n"), "d.jsonl:1: field 'text' is a number, expected text");
  EXPECT_EQ(FileError("e.jsonl", "{\"text\": \"\xff\"}\n").substr(0, 26), "e.jsonl:1: invalid UTF-8 a");
  EXPECT_EQ(FileError("f.jsonl", "{\"text\": [\"x\"]}\n"), "f.jsonl:1: field 'text' is a list, expected text");
  EXPECT_EQ(FileError("g.jsonl", "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}\n"),
            "g.jsonl:1: nested deeper than 64 levels");
  EXPECT_EQ(FileError("h.jsonl", "{\"text\": \"x\", \"text\": \"y\"}"), "h.jsonl:1: field 'text' stands here twice");
  EXPECT_EQ(FileError("i.parquet", "PAR1").substr(0, 38), "i.parquet: .parquet files are not read");
}

TEST_F(DataFiles, InvalidUtf8IsRefusedUnlessTokensAreBytes) {
  const std::string file = folder_.Write("a.txt", "first\nsecond \xc3\x28 line");
  const std::string tokenizer = folder_.Write(
      "tokenizer.json", R"({"added_tokens":[],"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})");
  EXPECT_EQ(OpenError(5, {"data_files=" + file, "tokenizer_path=" + tokenizer}),
            file +
                ":2: invalid UTF-8 at byte 13\n"
                "convert the file (iconv -f latin1 -t utf8), or use tokenizer_path=bytes");
  EXPECT_EQ(OpenError(5, {"data_files=" + file, "tokenizer_path=bytes"}), "no error");
}

TEST_F(DataFiles, JsonLinesWithOtherColumnsAndBlankLines) {
  const std::string file = folder_.Write(
      "a.jsonl.gz",
      Gzip("{\"id\": {\"text\": \"no\"}, \"body\": \"h\\u00e9\\n\"}\r\n\n{\"body\": \"two\", \"x\": [1]}"));
  const Settings settings =
      SettingsOf({"dataset_type=hf", "hf_path=json", "hf_train_files=" + file, "train_data_columns=content,body",
                  "tokenizer_path=bytes", "enable_data_shuffling=false"});
  const auto pieces = PiecesOf(OpenTrainData(settings, {1, 9, 258})->Next());
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].targets, (std::vector<int32_t>{'h', 0xc3, 0xa9, '\n', 257}));
  EXPECT_EQ(pieces[1].targets, (std::vector<int32_t>{'t', 'w', 'o', 257}));
}

TEST_F(DataFiles, NamesAndPatterns) {
  folder_.Write("b.txt", "b");
  folder_.Write("a.txt", "a");
  folder_.Write("c.jsonl", "c");
  const std::string all = folder_.Path("*.txt"), a = folder_.Path("a.txt"), c = folder_.Path("c.jsonl");
  const auto files = ExpandFiles({c, all, a}, "", "data_files");
  EXPECT_EQ(files, (std::vector<std::filesystem::path>{c, a, folder_.Path("b.txt")}));
  EXPECT_EQ(ExpandFiles({"a.txt"}, folder_.Path(""), "k").size(), 1u);
  EXPECT_EQ(ErrorText(5, [&] { ExpandFiles({folder_.Path("*.gz")}, "", "data_files"); }).substr(0, 27),
            "data_files: no file matches");
  EXPECT_EQ(ErrorText(5, [&] { ExpandFiles({folder_.Path("no.txt")}, "", "data_files"); }).substr(0, 20),
            "data_files: no file ");
  const std::string text = ErrorText(5, [&] { ExpandFiles({folder_.Path("")}, "", "data_files"); });
  EXPECT_NE(text.find("is a folder, not a file\nname the files in it"), std::string::npos) << text;
}

TEST_F(DataFiles, TheSettingsThatNameNoDataSayWhatTo) {
  EXPECT_EQ(OpenError(2, {}),
            "dataset_type=tfds needs dataset_path\n"
            "found ''; for a first run use dataset_type=synthetic, for your own text dataset_type=hf hf_path=json "
            "hf_train_files=FILE.jsonl");
  EXPECT_EQ(OpenError(2, {"dataset_path=/x"}).substr(0, 34), "dataset_type=tfds is not read: its");
  EXPECT_EQ(OpenError(2, {"dataset_type=hf", "hf_path=allenai/c4"}).substr(0, 32), "hf_path='allenai/c4' is not read");
  EXPECT_EQ(OpenError(2, {"dataset_type=hf", "hf_path=json"}).substr(0, 36), "dataset_type=hf needs hf_train_files");
  EXPECT_EQ(OpenError(2, {"dataset_type=hf"}),
            "dataset_type=hf needs hf_path\nfound ''; use hf_path=json or hf_path=text");
  EXPECT_EQ(OpenError(2, {"dataset_type=files"}).substr(0, 36), "dataset_type=files needs data_files\n");
  EXPECT_EQ(OpenError(2, {"dataset_type=grain"}).substr(0, 42), "dataset_type=grain needs grain_train_files");
  EXPECT_EQ(OpenError(2, {"dataset_type=synthetic", "data_files=x"}).substr(0, 46),
            "data_files and dataset_type=synthetic are both");
  const std::string file = folder_.Write("a.txt", "abc");
  EXPECT_EQ(OpenError(2, {"data_files=" + file}),
            file +
                " is text and needs a tokenizer\n"
                "give tokenizer_path=FILE, or tokenizer_path=bytes vocab_size=258");
  EXPECT_EQ(OpenError(2, {"data_files=" + file, "tokenizer_path=bytes"}, 200),
            file +
                ":1: the tokenizer gives id 257, but vocab_size=200\n"
                "use vocab_size=258 (the tokenizer's size, bytes) or more, or another tokenizer_path");
  EXPECT_EQ(OpenError(2, {"data_files=" + file, "tokenizer_path=bytes", "eval_fraction=0.5"}).substr(0, 44),
            "eval_fraction=0.5 holds out all 1 documents\n");
  EXPECT_EQ(OpenError(2, {"data_files=" + file, "tokenizer_path=bytes", "eval_fraction=1"}),
            "eval_fraction=1: expected at least 0 and less than 1");
}

}  // namespace
}  // namespace octavo::data
