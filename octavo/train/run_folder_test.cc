#include "octavo/train/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/train/json_lines.h"
#include "octavo/train/signals.h"

namespace octavo::train {
namespace {

using ::testing::HasSubstr;

Settings With(std::vector<std::string> words) { return Settings::Load({.words = std::move(words)}); }

TEST(RunFolder, SavesTheConfigAndTakesItAgain) {
  const TempFolder folder;
  const Settings settings = With({"run_name=x", "base_output_directory=" + folder.path().string(), "steps=7"});
  EXPECT_EQ(RunPath(settings), folder / "x");
  { const RunFolder run(settings, RunPath(settings)); }
  EXPECT_FALSE(std::filesystem::exists(folder / "x/config.yml"));  // a run that never began
  EXPECT_NO_THROW(RunFolder(With({"steps=8"}), folder / "x"));
  RunFolder(settings, RunPath(settings)).SaveConfig(settings);
  EXPECT_TRUE(std::filesystem::exists(folder / "x/config.yml"));
  const Settings again = With({(folder / "x/config.yml").string()});
  EXPECT_NO_THROW(RunFolder(again, RunPath(again)));
  // How often to save changes no number.
  EXPECT_NO_THROW(RunFolder(With({(folder / "x/config.yml").string(), "checkpoint_period=3"}), folder / "x"));
}

TEST(RunFolder, AnotherConfigIsNamed) {
  const TempFolder folder;
  RunFolder(With({"steps=7"}), folder / "x").SaveConfig(With({"steps=7"}));
  EXPECT_NO_THROW(RunFolder(With({"steps=8"}), folder / "x"));  // no step was made: nothing to lose
  std::ofstream(folder / "x/metrics.jsonl") << "{}\n";
  try {
    const RunFolder run(With({"steps=8", "learning_rate=0.1", "quantization=int8"}), folder / "x");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), (folder / "x").string() +
                                   " holds a run with a different config (3 keys: steps, quantization, learning_rate)");
    EXPECT_EQ(error.hint(), "resume with the saved config, or choose another run_name");
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
  }
}

TEST(RunFolder, ACheckpointMakesItARun) {
  const TempFolder folder;
  RunFolder(With({"steps=7"}), folder / "x").SaveConfig(With({"steps=7"}));
  std::filesystem::create_directories(folder / "x/checkpoints/.3.part");
  EXPECT_NO_THROW(RunFolder(With({"steps=8"}), folder / "x"));
  std::filesystem::create_directories(folder / "x/checkpoints/3");
  EXPECT_THROW(RunFolder(With({"steps=8"}), folder / "x"), Error);
}

TEST(RunFolder, OneProcessAtATime) {
  const TempFolder folder;
  const RunFolder run(With({}), folder / "x");
  EXPECT_THROW(RunFolder(With({}), folder / "x"), Error);
}

TEST(RunFolder, NamesMadeUp) {
  EXPECT_EQ(RunPath(With({"run_name=a"})), "out/a");
  EXPECT_THAT(RunPath(With({"base_output_directory=b"})).string(), testing::StartsWith("b/20"));
  EXPECT_THROW(RunPath(With({"run_name=../a"})), Error);
}

TEST(JsonLinesFile, GoesOnWhereTheRunDoes) {
  const TempFolder folder;
  {
    JsonLinesFile file(folder / "m.jsonl", 0);
    for (int step = 0; step < 5; ++step) file.Add("{\"event\":\"step\",\"step\":" + std::to_string(step) + "}");
    file.Add(R"({"event":"eval","step":3})");
    file.Add(R"({"event":"eval","step":4})");
  }
  std::ofstream(folder / "m.jsonl", std::ios::app) << "{\"event\":\"st";
  JsonLinesFile(folder / "m.jsonl", 3).Add("{}");
  std::stringstream text;
  text << std::ifstream(folder / "m.jsonl").rdbuf();
  EXPECT_EQ(text.str(),
            "{\"event\":\"step\",\"step\":0}\n{\"event\":\"step\",\"step\":1}\n{\"event\":\"step\",\"step\":2}\n"
            "{\"event\":\"eval\",\"step\":3}\n{}\n");
}

TEST(SignalGuard, FirstIsARequestSecondEnds) {
  {
    const SignalGuard guard;
    EXPECT_EQ(guard.received(), 0);
    raise(SIGTERM);
    EXPECT_EQ(guard.received(), SIGTERM);
  }
  EXPECT_EXIT(
      {
        const SignalGuard guard;
        raise(SIGINT);
        raise(SIGINT);
      },
      testing::ExitedWithCode(130), "");
}

TEST(SignalGuard, AnswersTheFirstInterrupt) {
  EXPECT_EXIT(
      {
        const SignalGuard guard(STDERR_FILENO);
        raise(SIGINT);
        _exit(3);
      },
      testing::ExitedWithCode(3), "^stopping after this step; Ctrl-C again stops now\n$");
}

// A lost connection: the shell sends a SIGHUP and the kernel another one.
TEST(SignalGuard, SighupIsARequestHoweverOftenItComes) {
  EXPECT_EXIT(
      {
        const SignalGuard guard;
        raise(SIGHUP);
        raise(SIGHUP);
        raise(SIGPIPE);
        if (guard.received() != SIGHUP) _exit(1);
        raise(SIGINT);
        if (guard.received() != SIGINT) _exit(2);
        raise(SIGINT);
      },
      testing::ExitedWithCode(130), "");
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);  // nohup
        const SignalGuard guard;
        raise(SIGHUP);
        _exit(guard.received());
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace octavo::train
