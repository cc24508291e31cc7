#include "octavo/base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace octavo {
namespace {

TEST(Log, PlainLinesWithAPrefix) {
  std::string out;
  Log log([&](std::string_view text) { out += text; }, {.level = LogLevel::kDebug});
  log.Error("{} is missing\nlook in {}", "a", "b");
  log.Warning("w");
  log.Info("loss {:.3f}", 1.5);
  log.Debug("d");
  EXPECT_EQ(out, "error: a is missing\nlook in b\nwarning: w\nloss 1.500\ndebug: d\n");
}

TEST(Log, DropsWhatIsTooDetailed) {
  std::string out;
  Log log([&](std::string_view text) { out += text; }, {.level = LogLevel::kWarning});
  log.Info("no");
  log.Debug("no");
  log.Warning("yes");
  log.Always("stopped   step {}", 3);
  EXPECT_EQ(out, "warning: yes\nstopped   step 3\n");
  EXPECT_FALSE(log.Shows(LogLevel::kInfo));
}

TEST(Log, ColoursThePrefixOnly) {
  std::string out;
  Log log([&](std::string_view text) { out += text; }, {.color = true});
  log.Error("x");
  log.Info("y");
  EXPECT_EQ(out, "\x1b[1;31merror: \x1b[0mx\ny\n");
}

TEST(Log, ControlCharactersAreHarmless) {
  std::string out;
  Log log([&](std::string_view text) { out += text; }, {});
  log.Info("{}", "a\x1b[2Jb\rc\td\x7f\ne é");
  EXPECT_EQ(out, "a?[2Jb?c\td?\ne é\n");
}

TEST(Log, StatusStaysBelowMessages) {
  std::string out;
  Log log([&](std::string_view text) { out += text; }, {.status_line = true});
  log.Status("10 %");
  log.Info("hello");
  log.Status("10 %");  // unchanged: nothing to draw
  log.Status("20 %\n");
  log.Status("");
  log.Info("bye");
  EXPECT_EQ(out, "\r\x1b[K10 %\r\x1b[Khello\n10 %\r\x1b[K20 %?\r\x1b[Kbye\n");
}

TEST(Log, NoStatusInAFile) {
  std::string out;
  Log log([&](std::string_view text) { out += text; }, {});
  log.Status("10 %");
  log.Info("hello");
  EXPECT_EQ(out, "hello\n");
}

TEST(Log, OptionsFollowTheEnvironment) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  // Not a terminal.
  EXPECT_FALSE(ChooseLogOptions(pipe_fds[1]).color);
  EXPECT_FALSE(ChooseLogOptions(pipe_fds[1]).status_line);
  EXPECT_TRUE(ChooseLogOptions(pipe_fds[1], ColorChoice::kAlways).color);
  EXPECT_EQ(ChooseLogOptions(pipe_fds[1], ColorChoice::kAuto, true).level, LogLevel::kWarning);
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);

  // A terminal: the master side of a new pseudo-terminal, where the system has one.
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) GTEST_SKIP() << "no pseudo-terminal";
  const int fd = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  if (fd < 0) GTEST_SKIP() << "no pseudo-terminal";
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "xterm", 1);
  EXPECT_TRUE(ChooseLogOptions(fd).color);
  EXPECT_TRUE(ChooseLogOptions(fd).status_line);
  EXPECT_FALSE(ChooseLogOptions(fd, ColorChoice::kNever).color);
  EXPECT_FALSE(ChooseLogOptions(fd, ColorChoice::kAuto, true).status_line);
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(ChooseLogOptions(fd).color);
  EXPECT_TRUE(ChooseLogOptions(fd).status_line);
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(ChooseLogOptions(fd).color);
  EXPECT_FALSE(ChooseLogOptions(fd).status_line);
  ::unsetenv("TERM");
  ::close(fd);
  ::close(terminal);
}

TEST(Log, AClosedPipeIsIgnored) {
  const auto previous = ::signal(SIGPIPE, SIG_IGN);
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  ::close(pipe_fds[0]);
  Log log(pipe_fds[1]);
  log.Info("nobody reads this");
  ::close(pipe_fds[1]);
  ::signal(SIGPIPE, previous);
}

TEST(Log, LinesOfThreadsDoNotMix) {
  std::string out;
  Log log([&](std::string_view text) { out += text; }, {});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&log, t] {
      for (int i = 0; i < 50; ++i) log.Info("{0}{0}{0}{0}{0}{0}{0}{0}", t);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(out.size(), 4u * 50u * 9u);
  for (size_t at = 0; at < out.size(); at += 9) {
    EXPECT_EQ(out.substr(at, 9), std::string(8, out[at]) + "\n");
  }
}

}  // namespace
}  // namespace octavo
