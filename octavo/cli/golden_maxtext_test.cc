// The runner of MaxText's training cases, on the selection in tests/: it passes on the recording, and fails when the
// recording is changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/safetensors.h"
#include "octavo/cli/golden.h"
#include "octavo/cli/golden_maxtext.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const fs::path kData = fs::path(OCTAVO_SOURCE_DIR) / "tests/golden/maxtext";
const char* const kCase = "gpt3m.aqt_int8_nosr";

// A copy of one case that a test may change.
class CaseCopy {
 public:
  CaseCopy() {
    const std::string own = kCase;
    for (const std::string& name : {own + ".json", own + ".safetensors", std::string("init.gpt3m.safetensors")}) {
      fs::copy(kData / name, folder_.path() / name);
    }
  }
  // Adds to the first number of a tensor.
  void Move(const std::string& tensor, float by) const {
    const fs::path file = folder_.path() / (std::string(kCase) + ".safetensors");
    int64_t at = 0;
    float value = 0;
    {
      const SafetensorsFile open(file);
      const StoredTensor& stored = open.At(tensor);
      std::memcpy(&value, stored.bytes.data(), sizeof(value));
      const StoredTensor& first = open.tensors().front();
      at = stored.bytes.data() - first.bytes.data() + static_cast<int64_t>(fs::file_size(file)) - DataBytes(open);
    }
    value += by;
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(at);
    stream.write(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Edit(const std::function<void(Json&)>& change) const {
    const fs::path file = folder_.path() / (std::string(kCase) + ".json");
    std::ifstream in(file);
    Json json = Json::parse(in);
    change(json);
    std::ofstream(file) << json;
  }
  GoldenFolderResult Run() const {
    ThreadPool pool(2);
    return MaxTextFolderKind().run(folder_.path(), pool);
  }
  std::string Problem() const {
    const GoldenFolderResult result = Run();
    return result.failures.empty() ? "" : result.failures[0].problem;
  }

 private:
  static int64_t DataBytes(const SafetensorsFile& file) {
    int64_t bytes = 0;
    for (const StoredTensor& stored : file.tensors()) bytes += static_cast<int64_t>(stored.bytes.size());
    return bytes;
  }
  TempFolder folder_;
};

TEST(GoldenMaxText, TheSelectionPasses) {
  ASSERT_TRUE(MaxTextFolderKind().accepts(kData));
  ThreadPool pool(2);
  const GoldenFolderResult result = MaxTextFolderKind().run(kData, pool);
  std::vector<std::string> failures;
  for (const auto& failure : result.failures) failures.push_back(failure.name + ": " + failure.problem);
  EXPECT_THAT(failures, IsEmpty());
  EXPECT_EQ(result.passed, 1 + 1 + 4);  // the case, the rules, four site tables
  ASSERT_FALSE(result.notes.empty());
  EXPECT_THAT(result.notes[0], HasSubstr("32 of 32 positions"));
}

TEST(GoldenMaxText, OtherFoldersAreNotTaken) {
  EXPECT_FALSE(MaxTextFolderKind().accepts(kData.parent_path() / "numerics"));
  EXPECT_FALSE(MaxTextFolderKind().accepts(kData / "nowhere"));
}

TEST(GoldenMaxText, AChangedRecordingFails) {
  const CaseCopy good;
  EXPECT_EQ(good.Problem(), "");
  const std::pair<const char*, const char*> changes[] = {
      {"out/logits", "positions agree"},
      {"grads/params/decoder/layers/mlp/wi/kernel", "gradients: decoder/layers/mlp/wi/kernel apart by"},
      {"step1/params/decoder/decoder_norm/scale", "step 1: decoder/decoder_norm/scale"},
      {"out/loss", "metric loss of step 0"},
      {"out/raw_grad_norm", "metric raw_grad_norm of step 0"},
      {"out/learning_rate", "metric learning_rate of step 0"}};
  for (const auto& [tensor, problem] : changes) {
    const CaseCopy changed;
    changed.Move(tensor, 0.01f);
    EXPECT_THAT(changed.Problem(), HasSubstr(problem)) << tensor;
  }
}

TEST(GoldenMaxText, AnotherConfigurationFails) {
  const CaseCopy other;
  other.Edit([](Json& json) { json["config"]["normalization_layer_epsilon"] = 1e-3; });
  EXPECT_THAT(other.Problem(), HasSubstr("logits"));
  const CaseCopy noisy;
  noisy.Edit([](Json& json) { json["forced"] = Json::array({"@unheard"}); });
  EXPECT_THAT(noisy.Problem(), HasSubstr("'@unheard' is not known"));
  const CaseCopy foreign;
  foreign.Edit([](Json& json) {
    json["config"]["decoder_block"] = "rwkv";
    json["overrides"] = Json::array();
  });
  EXPECT_THAT(foreign.Problem(), HasSubstr("unsupported architecture"));
  const CaseCopy engine;
  engine.Edit([](Json& json) { json["slots"] = 2; });
  EXPECT_THAT(engine.Problem(), HasSubstr("prompt_len"));
}

TEST(GoldenMaxText, ASiteTableThatDiffersFails) {
  std::ifstream in(kData / "sites.json");
  const Json table = Json::parse(in);
  const auto problems = [&](const std::function<void(Json&)>& change) {
    Json changed = table;
    changed["cases"] = Json::array({table["cases"][0]});
    change(changed["cases"][0]["ops"]);
    const TempFolder folder;
    std::ofstream(folder.path() / "sites.json") << changed;
    return CompareMaxTextSites(folder.path() / "sites.json").back().problems;
  };
  EXPECT_THAT(problems([](Json&) {}), IsEmpty());
  EXPECT_FALSE(problems([](Json& ops) { ops[3]["path"] = "decoder/layers/self_attention/qkv"; }).empty());
  EXPECT_FALSE(problems([](Json& ops) { ops[3]["rule_int8"] = nullptr; }).empty());
  EXPECT_FALSE(problems([](Json& ops) { ops[3]["op_id"] = "dot_general1"; }).empty());
  EXPECT_FALSE(problems([](Json& ops) { ops[3]["weight"] = "decoder/layers/mlp/wi/kernel"; }).empty());
  EXPECT_FALSE(problems([](Json& ops) { ops[6]["dims"][0] = Json::array({{2}, {0}}); }).empty());
  EXPECT_FALSE(problems([](Json& ops) { ops.erase(ops.size() - 1); }).empty());
}

}  // namespace
}  // namespace octavo
