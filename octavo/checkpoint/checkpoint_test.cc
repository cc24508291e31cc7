#include "octavo/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "octavo/base/error.h"
#include "octavo/base/rng.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/checkpoint_store.h"
#include "octavo/checkpoint/safetensors_writer.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor Random(const Shape& shape, uint64_t seed) {
  Tensor values = Tensor::Empty(shape, DType::kF32);
  for (int64_t i = 0; i < shape.size(); ++i) {
    values.MutableData<float>()[i] = Normal(RngKey::FromSeed(seed), static_cast<uint64_t>(i));
  }
  return values;
}

CheckpointContent Content(int64_t step) {
  const auto seed = static_cast<uint64_t>(step);
  CheckpointContent content;
  content.step = step;
  content.config = "steps: 40\nrun_name: \"ü\"\n";
  content.recipe = "rules: []\n";
  content.data_state = R"({"epoch": 1})";
  content.parameters = {{"decoder/layers_0/mlp/wi_0/kernel", Random({8, 6}, seed)},
                        {"decoder/norm/scale", Random({6}, seed + 1)},
                        {"token_embedder/embedding", Random({10, 6}, seed + 2).Transpose()}};
  content.optimizer = {{"opt/count", Tensor::FromValues<int64_t>({}, DType::kI64, std::vector<int64_t>{step})},
                       {"opt/mu/decoder/norm/scale", Random({6}, seed + 3)}};
  content.state = {{"decoder/mlp/amax", Random({4}, seed + 4)}};
  return content;
}

std::string Read(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}
void Write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// What opening and checking everything says.
std::string ProblemOf(const fs::path& folder) {
  try {
    const Checkpoint checkpoint(folder);
    checkpoint.Verify();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile);
    return error.what();
  }
  return "";
}

TEST(Checkpoint, RoundTripKeepsEveryBit) {
  const TempFolder folder;
  const CheckpointContent content = Content(20);
  const WrittenCheckpoint written = WriteCheckpoint(folder / "20", content, {.file_bytes = 200});
  const Checkpoint checkpoint(folder / "20");
  EXPECT_EQ(checkpoint.manifest().step, 20);
  EXPECT_EQ(checkpoint.manifest().config, content.config);
  EXPECT_EQ(checkpoint.manifest().recipe, content.recipe);
  EXPECT_EQ(checkpoint.manifest().data_state, content.data_state);
  EXPECT_EQ(checkpoint.manifest().Bits(), written.bits);
  for (const NamedTensors* group : {&content.parameters, &content.optimizer, &content.state}) {
    for (const auto& [name, tensor] : *group) EXPECT_TRUE(BitEqual(checkpoint.Load(name), tensor)) << name;
  }
  EXPECT_EQ(checkpoint.LoadAll("opt/").size(), 2u);
  EXPECT_TRUE(fs::exists(folder / "20" / "model-00003-of-00003.safetensors"));  // 192, 24 and 240 bytes
  uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(folder / "20")) bytes += file.file_size();
  EXPECT_EQ(bytes, written.bytes);
}

TEST(Checkpoint, BitsChangeWithAnyBit) {
  const TempFolder folder;
  CheckpointContent content = Content(1);
  const std::string bits = WriteCheckpoint(folder / "a", content).bits;
  EXPECT_EQ(WriteCheckpoint(folder / "b", content, {.file_bytes = 100}).bits, bits);  // files do not matter
  content.optimizer[1].second = content.optimizer[1].second.Clone();
  content.optimizer[1].second.MutableData<float>()[5] = -content.optimizer[1].second.Data<float>()[5];
  EXPECT_NE(WriteCheckpoint(folder / "c", content).bits, bits);
  EXPECT_EQ(Checkpoint(folder / "a").manifest().Bits("decoder/"), Checkpoint(folder / "c").manifest().Bits("decoder/"));
}

TEST(Checkpoint, NamesWhatIsWrong) {
  const TempFolder folder;
  WriteCheckpoint(folder / "1", Content(1));
  EXPECT_THAT(ProblemOf(folder / "none"), HasSubstr("is not a checkpoint"));
  const fs::path model = folder / "1/model-00001-of-00001.safetensors";
  std::string bytes = Read(model);
  bytes.back() ^= 1;  // the last element of the last tensor by name
  Write(model, bytes);
  EXPECT_THAT(ProblemOf(folder / "1"),
              HasSubstr("tensor 'token_embedder/embedding' bytes [0, 240) do not match its checksum; written "));
  fs::remove(model);
  EXPECT_THAT(ProblemOf(folder / "1"), HasSubstr("model-00001-of-00001.safetensors is missing"));
  try {
    WriteCheckpoint(folder / "2", Content(2));
    Checkpoint(folder / "2").Load("decoder/norm/scales");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("nearest: decoder/norm/scale"));
  }
}

TEST(Checkpoint, EveryCorruptionAndTruncationIsDetected) {
  const TempFolder folder;
  WriteCheckpoint(folder / "1", Content(1), {.file_bytes = 300});
  ASSERT_EQ(ProblemOf(folder / "1"), "");
  const RngKey key = RngKey::FromSeed(5);
  uint64_t draw = 0;
  for (const auto& entry : fs::directory_iterator(folder / "1")) {
    const std::string whole = Read(entry.path());
    for (int i = 0; i < 300; ++i) {
      std::string broken = whole;
      const size_t at = key.Bits64(draw++) % whole.size();
      broken[at] = static_cast<char>(broken[at] ^ (1 << (key.Bits32(draw++) % 8)));
      Write(entry.path(), broken);
      ASSERT_NE(ProblemOf(folder / "1"), "") << entry.path() << " byte " << at;
    }
    for (int i = 0; i < 60; ++i) {
      Write(entry.path(), whole.substr(0, key.Bits64(draw++) % whole.size()));
      ASSERT_NE(ProblemOf(folder / "1"), "") << entry.path();
    }
    Write(entry.path(), whole + "x");
    ASSERT_NE(ProblemOf(folder / "1"), "") << entry.path() << " with a byte more";
    Write(entry.path(), whole);
  }
  EXPECT_EQ(ProblemOf(folder / "1"), "");
}

// The example of docs/formats/checkpoint.md, byte for byte.
TEST(Checkpoint, WritesTheDocumentedBytes) {
  const TempFolder folder;
  CheckpointContent content;
  content.kind = "params";
  content.step = 20;
  content.config = "run_name: x\n";
  content.parameters = {
      {"decoder/decoder_norm/scale", Tensor::FromValues<float>({2}, DType::kF32, std::vector<float>{1, 0.5f})}};
  WriteCheckpoint(folder / "20", content);
  std::string hex;
  for (const char c : Read(folder / "20/model-00001-of-00001.safetensors")) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  std::string documented, line;
  std::ifstream page(fs::path(OCTAVO_SOURCE_DIR) / "docs/formats/checkpoint.md");
  std::string manifest;
  bool in_manifest = false;
  while (std::getline(page, line)) {
    if (line.size() > 58 && line[8] == ':' && line.starts_with("0000")) {
      for (const char c : line.substr(10, 48)) {
        if (c != ' ') documented += c;
      }
    }
    if (line.starts_with("{\"digest\"")) in_manifest = true;
    if (line == "```") in_manifest = false;
    if (in_manifest) manifest += line + "\n";
  }
  EXPECT_EQ(hex, documented);
  // The manifest names the program's version, so it is compared by content; its digest must be right too.
  const Manifest written = Checkpoint(folder / "20").manifest(), read = ParseManifest(manifest, "the page");
  EXPECT_EQ(read.Bits(), written.Bits());
  EXPECT_EQ(read.files.begin()->second.header_digest, written.files.begin()->second.header_digest);
  EXPECT_EQ(read.config, written.config);
}

TEST(Checkpoint, ManifestIsRefusedWhenNewerOrLeadingElsewhere) {
  Manifest manifest;
  manifest.kind = "params";
  manifest.files["../x.safetensors"] = {8, std::string(32, '0')};
  EXPECT_THROW(ParseManifest(ManifestText(manifest), "m"), Error);
  manifest.files.clear();
  EXPECT_EQ(ParseManifest(ManifestText(manifest), "m").kind, "params");
  EXPECT_THROW(ParseManifest("{}", "m"), Error);
  EXPECT_THROW(ParseManifest("", "m"), Error);
}

// A failure at each system call: what was there before is still whole, or the new one is.
TEST(Checkpoint, AFaultAtAnyStepLeavesOneWholeCheckpoint) {
  int steps = 0;
  {
    const TempFolder folder;
    WriteCheckpointOptions options;
    options.fault = [&](PublishStep, const fs::path&) { return ++steps, 0; };
    WriteCheckpoint(folder / "x", Content(1), options);
    WriteCheckpoint(folder / "x", Content(2), options);
  }
  ASSERT_GT(steps, 10);
  for (int bad = 1; bad <= steps; ++bad) {
    const TempFolder folder;
    int at = 0;
    WriteCheckpointOptions options;
    options.fault = [&](PublishStep, const fs::path&) { return ++at == bad ? ENOSPC : 0; };
    int64_t written = 0;
    try {
      for (int64_t step = 1; step <= 2; ++step) {
        WriteCheckpoint(folder / "x", Content(step), options);
        written = step;
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kJob) << error.what();
    }
    if (!fs::exists(folder / "x")) {
      EXPECT_EQ(written, 0);
      continue;
    }
    EXPECT_EQ(ProblemOf(folder / "x"), "") << "fault at step " << bad;
    EXPECT_GE(Checkpoint(folder / "x").manifest().step, written);
  }
}

// The process ends at each system call: the store finds the newest whole one and removes the rest.
TEST(CheckpointStore, AKillAtAnyStepLosesNothingPublished) {
  for (int bad = 1;; ++bad) {
    const TempFolder folder;
    const pid_t child = fork();
    if (child == 0) {
      int at = 0;
      StoreOptions options{.keep = 1, .async = false};
      options.write.fault = [&](PublishStep, const fs::path&) {
        if (++at == bad) _exit(9);
        return 0;
      };
      CheckpointStore store(folder / "checkpoints", options);
      store.Save(Content(10));
      store.Save(Content(20));
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    Log log([](std::string_view) {});
    CheckpointStore store(folder / "checkpoints", {});
    const std::optional<Checkpoint> found = store.OpenLatest(log);
    for (const int64_t step : store.Steps()) EXPECT_EQ(ProblemOf(store.PathOf(step)), "");
    if (found) {
      for (const auto& entry : fs::directory_iterator(store.folder())) {
        EXPECT_FALSE(entry.path().filename().string().starts_with(".1") ||
                     entry.path().filename().string().starts_with(".2"))
            << entry.path();
      }
    }
    if (WEXITSTATUS(status) == 0) {
      ASSERT_TRUE(found);
      EXPECT_EQ(found->manifest().step, 20);
      EXPECT_THAT(store.Steps(), ElementsAre(20));
      EXPECT_GT(bad, 10);
      break;
    }
  }
}

TEST(CheckpointStore, KeepsTheNewestAndLinksLatest) {
  const TempFolder folder;
  CheckpointStore store(folder / "c", {.keep = 2});
  for (const int64_t step : {10, 20, 100}) store.Save(Content(step));
  store.Wait();
  EXPECT_THAT(store.Steps(), ElementsAre(20, 100));
  EXPECT_EQ(Checkpoint(folder / "c/latest").manifest().step, 100);
  const std::vector<SavedCheckpoint> saved = store.Completed();
  ASSERT_EQ(saved.size(), 3u);
  EXPECT_EQ(saved[2].bits, Checkpoint(folder / "c/100").manifest().Bits());
  EXPECT_TRUE(store.Completed().empty());
}

TEST(CheckpointStore, ADamagedOneIsSkippedWithALine) {
  const TempFolder folder;
  std::string text;
  Log log([&](std::string_view line) { text += line; });
  CheckpointStore store(folder / "c", {.async = false});
  EXPECT_FALSE(store.OpenLatest(log));
  for (const int64_t step : {10, 20, 30}) store.Save(Content(step));
  const fs::path manifest = folder / "c/30/manifest.json";
  Write(manifest, Read(manifest).substr(0, 100));
  std::string bytes = Read(folder / "c/20/state-00001-of-00001.safetensors");
  bytes[bytes.size() - 3] ^= 0x10;
  Write(folder / "c/20/state-00001-of-00001.safetensors", bytes);
  const std::optional<Checkpoint> found = store.OpenLatest(log);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->manifest().step, 10);
  EXPECT_THAT(text, HasSubstr("c/30 is damaged and not used"));
  EXPECT_THAT(text, HasSubstr("going on from the one before it, " + (folder / "c/20").string()));
  EXPECT_THAT(text, HasSubstr("tensor 'decoder/mlp/amax' bytes"));
}

// Going on from nothing would overwrite what somebody may still rescue.
TEST(CheckpointStore, AllDamagedIsAnErrorThatChangesNothing) {
  const TempFolder folder;
  Log log([](std::string_view) {});
  CheckpointStore store(folder / "c", {.async = false});
  fs::create_directories(folder / "c/.removed-5");
  for (const int64_t step : {10, 20}) {
    store.Save(Content(step));
    const fs::path manifest = store.PathOf(step) / "manifest.json";
    Write(manifest, Read(manifest).substr(0, 100));
  }
  const auto problem = [&]() -> std::string {
    try {
      store.OpenLatest(log);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFile);
      EXPECT_EQ(error.hint(), "restore one, or start anew with another run_name");
      return error.message();
    }
    return "no error";
  };
  EXPECT_EQ(problem(), fmt::format("all 2 checkpoints in {} are damaged", store.folder().string()));
  EXPECT_THAT(store.Steps(), ElementsAre(10, 20));
  EXPECT_TRUE(fs::exists(folder / "c/.removed-5"));
  fs::remove_all(store.PathOf(10));
  EXPECT_EQ(problem(), fmt::format("the only checkpoint in {} is damaged", store.folder().string()));
}

TEST(CheckpointStore, BackgroundSaveWritesTheValuesOfItsMoment) {
  const TempFolder folder;
  CheckpointStore store(folder / "c", {});
  CheckpointContent content = Content(1);
  Tensor live = content.parameters[1].second;
  const std::vector<float> before = live.ToVector<float>();
  store.Save(content);
  live.MutableData<float>()[0] = 1e9f;  // the next step, while the thread writes
  store.Wait();
  EXPECT_EQ(Checkpoint(folder / "c/1").Load("decoder/norm/scale").ToVector<float>(), before);
}

TEST(CheckpointStore, ErrorsOfTheBackgroundSurface) {
  const TempFolder folder;
  StoreOptions options;
  options.write.fault = [](PublishStep step, const fs::path&) { return step == PublishStep::kSync ? ENOSPC : 0; };
  CheckpointStore store(folder / "c", options);
  store.Save(Content(1));
  EXPECT_THROW(store.Wait(), Error);
  EXPECT_NO_THROW(store.Wait());  // said once
  store.Save(Content(2));
  EXPECT_THROW(store.Save(Content(3)), Error);
  EXPECT_TRUE(store.Steps().empty());
}

}  // namespace
}  // namespace octavo
