#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "octavo/base/temp_folder.h"
#include "octavo/cli/golden_test_support.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

const fs::path kData = fs::path(OCTAVO_SOURCE_DIR) / "tests/golden/tokenizers";

RunOutput RunVerbose(const fs::path& folder) { return RunFolder(folder, true); }

TEST(GoldenTokenizers, TheSelectionPasses) {
  const RunOutput result = RunVerbose(kData);
  EXPECT_EQ(result.log, "");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("bpe_bytelevel "));
  EXPECT_THAT(result.out, HasSubstr("spm_bpe "));
}

// A change of any field of a case fails that case and no other.
TEST(GoldenTokenizers, EveryChangedFieldFails) {
  for (const char* name : {"bpe_bytelevel", "bpe_bytefallback", "spm_bpe"}) {
    const Json index = Json::parse(ReadFile(kData / name / "cases.json"));
    TempFolder folder;
    for (const char* file : {"tokenizer.json", "tokenizer.model"}) {
      if (fs::exists(kData / name / file)) fs::copy_file(kData / name / file, folder / file);
    }
    size_t number = 0;  // a case with everything in it
    while (index["cases"][number]["ids"].size() < 3 || index["cases"][number].contains("raw_hex")) ++number;
    for (const auto& [key, value] : index["cases"][number].items()) {
      Json changed = index;
      Json& field = changed["cases"][number][key];
      if (value.is_string()) {
        field = value.get<std::string>() + "x";
      } else {
        field.erase(field.begin() + 1);
      }
      WriteFile(folder / "cases.json", changed.dump());
      const RunOutput result = RunVerbose(folder.path());
      EXPECT_EQ(result.code, 1) << name << " " << key;
      EXPECT_THAT(result.out, HasSubstr(" passed, 1 failed\n")) << name << " " << key;
    }
    Json odd = index;
    odd["cases"][number]["attention"] = 1;
    WriteFile(folder / "cases.json", odd.dump());
    EXPECT_THAT(RunVerbose(folder.path()).log, HasSubstr("'attention' is not known"));
    odd = index;
    odd["cases"] = {{{"text", "a"}, {"ids", {1}}, {"error", "ValueError"}},
                    {{"ids", {1 << 20}}, {"error", "IndexError"}}};
    WriteFile(folder / "cases.json", odd.dump());
    EXPECT_THAT(RunVerbose(folder.path()).log, HasSubstr("cases[0]\n  no error, where"));
    EXPECT_THAT(RunVerbose(folder.path()).log, testing::Not(HasSubstr("cases[1]")));
  }
}

TEST(GoldenTokenizers, ListsOfIdsFindTheirTokenizer) {
  const TempFolder temp;
  const fs::path root = temp / "data/tokenizers";  // the folders above are searched too: keep them our own
  fs::create_directories(root / "cases");
  for (const char* name : {"bpe_bytelevel", "bpe_bytefallback"}) fs::copy(kData / name, root / name);
  const std::string separator = "\n__ggml_vocab_test__\n";
  for (const char* name : {"bpe_bytelevel", "bpe_bytefallback"}) {
    const Json index = Json::parse(ReadFile(kData / name / "cases.json"));
    std::string texts, ids;
    for (const auto& one : index["cases"]) {
      if (one.contains("raw_hex")) continue;
      texts += one["text"].get<std::string>() + separator;
      for (int id : one["ids"]) ids += fmt::format(" {}", id);
      ids += "\n";
    }
    // One by its name, the other one by what it gives.
    const std::string stem = std::string(name) == "bpe_bytelevel" ? name : "another";
    WriteFile(root / "cases" / (stem + ".inp"), texts);
    WriteFile(root / "cases" / (stem + ".out"), ids);
  }
  const RunOutput good = RunVerbose(root / "cases");
  EXPECT_EQ(good.log, "");
  EXPECT_EQ(good.code, 0);
  std::string ids = ReadFile(root / "cases/another.out");
  ids.insert(ids.rfind('\n'), " 7");
  WriteFile(root / "cases/another.out", ids);
  const RunOutput bad = RunVerbose(root / "cases");
  EXPECT_THAT(bad.out, HasSubstr(" passed, 1 failed\n"));
  EXPECT_THAT(bad.log, HasSubstr("bpe_bytefallback: expected"));
}

TEST(GoldenTokenizers, AFolderOfAnUnknownFormFails) {
  const TempFolder root;
  fs::copy(kData / "bpe_bytelevel", root / "known");
  fs::create_directories(root / "other/deep");
  WriteFile(root / "other/deep/expected.npz", "x");
  const RunOutput result = RunVerbose(root.path());
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("other/deep  0 passed, 1 failed\n"));
  EXPECT_THAT(result.log, HasSubstr("no runner for reference data of this form"));
  // A broken folder inside is a failure, and the others still run.
  WriteFile(root / "known/cases.json", "{");
  EXPECT_THAT(RunVerbose(root.path()).out, HasSubstr("0 passed, 2 failed\n"));
}

}  // namespace
}  // namespace octavo
