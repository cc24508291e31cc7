#include "octavo/data/packed_source.h"

#include <gtest/gtest.h>

#include <set>

#include "octavo/data/data_test_support.h"

namespace octavo::data {
namespace {

constexpr int32_t kBos = 256, kEos = 257;

std::vector<std::string> Words(const std::string& files, std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"data_files=" + files, "tokenizer_path=bytes"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

DataOptions Options(int64_t rows, int64_t length) { return {rows, length, 258}; }

// Documents d0, d1, … of different lengths; some longer than a row.
std::string Documents(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text +=
        fmt::format("d{} ", i) + std::string(static_cast<size_t>(i * 7 % 23), static_cast<char>('a' + i % 26)) + "\n\n";
  }
  return text;
}

std::string TextOf(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += id == kBos ? '<' : id == kEos ? '>' : static_cast<char>(id);
  return text;
}

TEST(PackedSource, PacksInTheReferencesLayout) {
  DataFolder folder;
  const std::string file = folder.Write("a.txt", "abc\n\ndefghij\n\n\n\nk");
  const auto source = OpenTrainData(SettingsOf(Words(file, {"enable_data_shuffling=false"})), Options(3, 6));
  const Batch batch = source->Next();
  // <abc> <defghij> <k>, every token but the first a target, cut where a row ends.
  EXPECT_EQ(TextOf(batch.inputs.ToVector<int32_t>()), "<abc<defghij<k<abc");
  EXPECT_EQ(TextOf(batch.targets.ToVector<int32_t>()), "abc>defghij>k>abc>");
  EXPECT_EQ(batch.inputs_segmentation.ToVector<int32_t>(),
            (std::vector<int32_t>{1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2}));
  EXPECT_EQ(batch.inputs_position.ToVector<int32_t>(),
            (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 4, 5, 0, 1, 0, 1, 2, 3}));
  EXPECT_TRUE(BitEqual(batch.inputs_position, batch.targets_position));
  EXPECT_TRUE(BitEqual(batch.inputs_segmentation, batch.targets_segmentation));
  EXPECT_EQ(TargetWeights(batch), 18);
}

TEST(PackedSource, WithoutPackingOneDocumentIsARow) {
  DataFolder folder;
  const std::string file = folder.Write("a.txt", "abc\n\ndefghij\n\nk");
  const std::vector<std::string> plain = {"enable_data_shuffling=false", "packing=false", "data_repeat=false"};
  const auto cut = OpenTrainData(SettingsOf(Words(file, plain)), Options(4, 6));
  const Batch batch = cut->Next();
  EXPECT_EQ(TextOf(batch.targets.ToVector<int32_t>()),
            std::string("abc>") + std::string(2, '\0') + "defghi" + "k>" + std::string(10, '\0'));
  EXPECT_EQ(TargetWeights(batch), 12);
  EXPECT_TRUE(cut->Done());
  std::vector<std::string> whole = plain;
  whole.push_back("use_truncation=false");
  EXPECT_EQ(TargetWeights(OpenTrainData(SettingsOf(Words(file, whole)), Options(4, 6))->Next()), 14);
}

TEST(PackedSource, AtMostSoManySegments) {
  DataFolder folder;
  const std::string file = folder.Write("a.txt", "a\n\nb\n\nc\n\nd");
  const auto source =
      OpenTrainData(SettingsOf(Words(file, {"enable_data_shuffling=false", "max_segments_per_seq=2"})), Options(2, 8));
  const Batch batch = source->Next();
  EXPECT_EQ(batch.inputs_segmentation.ToVector<int32_t>(),
            (std::vector<int32_t>{1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 2, 2, 0, 0, 0, 0}));
}

TEST(PackedSource, EveryPositionResumesExactly) {
  DataFolder folder;
  const std::string file = folder.Write("a.txt", Documents(41));
  const Settings settings = SettingsOf(Words(file, {"eval_fraction=0.1"}));
  const auto source = OpenTrainData(settings, Options(3, 10));
  std::vector<std::string> states;
  std::vector<Batch> batches;
  for (int i = 0; i < 60; ++i) {  // several passes
    states.push_back(source->State());
    batches.push_back(source->Next());
  }
  for (size_t i = 0; i < states.size(); ++i) {
    const auto resumed = OpenTrainData(settings, Options(3, 10));
    resumed->Restore(states[i]);
    EXPECT_EQ(resumed->State(), states[i]);
    for (size_t j = i; j < std::min(i + 3, batches.size()); ++j) EXPECT_TRUE(SameBatch(resumed->Next(), batches[j]));
  }
  source->Restore(states[0]);  // and backwards
  EXPECT_TRUE(SameBatch(source->Next(), batches[0]));
}

// All targets of one pass, per document.
std::multiset<std::string> TargetsOfPass(BatchSource& source) {
  std::string stream;
  while (!source.Done()) {
    for (const Piece& piece : PiecesOf(source.Next())) stream += TextOf(piece.targets);
  }
  std::multiset<std::string> documents;
  for (size_t begin = 0; begin < stream.size();) {
    const size_t end = stream.find('>', begin);
    documents.insert(stream.substr(begin, end - begin));
    begin = end + 1;
  }
  return documents;
}

TEST(PackedSource, APassHoldsEveryDocumentOnceAndTheSplitDoesNotOverlap) {
  DataFolder folder;
  const std::string file = folder.Write("a.txt", Documents(97));
  std::multiset<std::string> all;
  for (int i = 0; i < 97; ++i) {
    all.insert(fmt::format("d{} ", i) + std::string(static_cast<size_t>(i * 7 % 23), static_cast<char>('a' + i % 26)));
  }
  const Settings whole = SettingsOf(Words(file, {"data_repeat=false"}));
  EXPECT_EQ(TargetsOfPass(*OpenTrainData(whole, Options(2, 16))), all);
  for (const char* seed : {"data_shuffle_seed=0", "data_shuffle_seed=5"}) {
    const Settings split = SettingsOf(Words(file, {"data_repeat=false", "eval_fraction=0.2", seed}));
    std::multiset<std::string> train = TargetsOfPass(*OpenTrainData(split, Options(2, 16)));
    const std::multiset<std::string> held_out = TargetsOfPass(*OpenEvalData(split, Options(3, 16)));
    EXPECT_EQ(held_out.size(), 20u);
    for (const std::string& document : held_out) EXPECT_EQ(train.count(document), 0u);
    train.insert(held_out.begin(), held_out.end());
    EXPECT_EQ(train, all);
  }
}

TEST(PackedSource, PassesHaveDifferentOrders) {
  DataFolder folder;
  const std::string file = folder.Write("a.txt", Documents(30));
  const auto order = [&](std::vector<std::string> more, int64_t rows) {
    const auto source = OpenTrainData(SettingsOf(Words(file, std::move(more))), Options(rows, 30));
    std::string stream;
    for (int i = 0; i < 60; ++i) {
      for (const Piece& piece : PiecesOf(source->Next())) stream += TextOf(piece.targets);
    }
    return stream;
  };
  const std::string stream = order({}, 1);
  const size_t pass = Documents(30).size() - 30;  // "\n\n" goes, '>' comes
  EXPECT_NE(stream.substr(0, pass), stream.substr(pass, pass));
  EXPECT_NE(stream.substr(0, pass), order({"data_shuffle_seed=1"}, 1).substr(0, pass));
  // The rows of a batch are the rows of the stream: their number changes nothing.
  EXPECT_EQ(order({}, 2).substr(0, stream.size()), stream);
  const std::string plain = order({"enable_data_shuffling=false"}, 1);
  EXPECT_EQ(plain.substr(0, pass), plain.substr(pass, pass));
}

TEST(PackedSource, TheEndIsAnErrorThatSaysWhatToDo) {
  DataFolder folder;
  const std::string file = folder.Write("a.txt", "abc");
  const auto source = OpenTrainData(SettingsOf(Words(file, {"data_repeat=false", "num_epoch=2"})), Options(1, 8));
  EXPECT_FALSE(source->Done());
  EXPECT_EQ(TargetWeights(source->Next()), 8);
  EXPECT_TRUE(source->Done());
  EXPECT_EQ(ErrorText(1, [&] { source->Next(); }),
            "the data ended after 2 passes\nraise num_epoch, set data_repeat=true, or lower steps");
}

TEST(PackedSource, APositionOfOtherDataIsRefused) {
  DataFolder folder;
  const std::string a = folder.Write("a.txt", Documents(9)), b = folder.Write("b.txt", Documents(8));
  const auto one = OpenTrainData(SettingsOf(Words(a)), Options(1, 8));
  const auto two = OpenTrainData(SettingsOf(Words(b)), Options(1, 8));
  EXPECT_EQ(ErrorText(2, [&] { two->Restore(one->State()); }).substr(0, 54),
            "the data is not the data that this run was trained on\n");
  for (const char* bad : {"", "{", "[]", "{}", "{\"pass\":\"x\"}", "null"}) {
    EXPECT_NE(ErrorText(5, [&] { one->Restore(bad); }).find("not a position in this data"), std::string::npos) << bad;
  }
  std::string far = one->State();
  far.replace(far.find("\"index\":0"), 9, "\"index\":99");
  EXPECT_NE(ErrorText(5, [&] { one->Restore(far); }).find("not a position"), std::string::npos);
  std::string deep = one->State();
  deep.replace(deep.find("\"token\":0"), 9, "\"token\":99");
  EXPECT_NE(ErrorText(5, [&] { one->Restore(deep); }).find("not a position"), std::string::npos);
}

TEST(PackedSource, EvaluationEndsAndBeginsAgain) {
  DataFolder folder;
  const std::string file = folder.Write("a.txt", Documents(20)), held_out = folder.Write("b.txt", "abc\n\nde");
  const Settings settings = SettingsOf(Words(file, {"eval_data_files=" + held_out}));
  const auto source = OpenEvalData(settings, Options(2, 5));
  const std::string start = source->State();
  const Batch first = source->Next();
  EXPECT_EQ(TextOf(first.targets.ToVector<int32_t>()), "abc>de>" + std::string(3, '\0'));
  EXPECT_TRUE(source->Done());
  source->Restore(start);
  EXPECT_TRUE(SameBatch(source->Next(), first));
  EXPECT_EQ(OpenEvalData(SettingsOf(Words(file)), Options(2, 5)), nullptr);
}

}  // namespace
}  // namespace octavo::data
