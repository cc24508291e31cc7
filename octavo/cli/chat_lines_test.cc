#include "octavo/cli/chat_lines.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string_view>
#include <thread>

#include "octavo/base/error.h"
#include "octavo/cli/generation.h"

namespace octavo {
namespace {

using What = ChatLines::What;

struct Pipe {
  Pipe() { EXPECT_EQ(pipe(ends), 0); }
  ~Pipe() {
    close(ends[0]);
    Close();
  }
  void Write(std::string_view text) const {
    EXPECT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void Close() {
    if (ends[1] >= 0) close(ends[1]);
    ends[1] = -1;
  }
  int ends[2] = {-1, -1};
};

TEST(ChatLines, EndWithTheirLinesAndTheLastNeedsNoEnd) {
  InterruptGuard::Clear();
  Pipe input;
  input.Write("one\n\ntwo\r\n日本");
  input.Close();
  ChatLines lines(input.ends[0]);
  std::string line;
  for (const char* expected : {"one", "", "two", "日本"}) {
    ASSERT_EQ(lines.Next(line), What::kLine);
    EXPECT_EQ(line, expected);
  }
  EXPECT_EQ(lines.Next(line), What::kEnd);
  EXPECT_EQ(lines.Next(line), What::kEnd);
}

TEST(ChatLines, MayBeLong) {
  InterruptGuard::Clear();
  Pipe input;
  const std::string text(3'000'000, 'x');
  std::thread writer([&] {
    for (size_t at = 0; at < text.size(); at += 10'000) input.Write(std::string_view(text).substr(at, 10'000));
    input.Write("\nend\n");
  });
  ChatLines lines(input.ends[0]);
  std::string line;
  ASSERT_EQ(lines.Next(line), What::kLine);
  EXPECT_TRUE(line == text);
  ASSERT_EQ(lines.Next(line), What::kLine);
  EXPECT_EQ(line, "end");
  writer.join();
}

TEST(ChatLines, WhatIsPastedIsOneLineAndKeysAreNoText) {
  InterruptGuard::Clear();
  Pipe input;
  input.Write("see \x1b[200~one\n\ntwo\x1b[201~ ?\na\x1b[A\x1b[1;5C\x1bOHb\nplain\n");
  input.Close();
  ChatLines lines(input.ends[0], true);
  std::string line;
  for (const char* expected : {"see one\n\ntwo ?", "ab", "plain"}) {
    ASSERT_EQ(lines.Next(line), What::kLine);
    EXPECT_EQ(line, expected);
  }
  EXPECT_EQ(lines.Next(line), What::kEnd);
}

TEST(ChatLines, ThatATerminalCutAreRefused) {
  InterruptGuard::Clear();
  Pipe input;
  input.Write(std::string(4095, 'x') + "\n" + std::string(4094, 'y') + "\n");
  ChatLines lines(input.ends[0], true);
  std::string line;
  try {
    lines.Next(line);
    FAIL() << "a line that was cut was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "the terminal cuts lines at 4095 bytes; nothing was sent");
  }
  ASSERT_EQ(lines.Next(line), What::kLine);
  EXPECT_EQ(line, std::string(4094, 'y'));
}

// The signal goes to any thread, and not to the one that waits here.
TEST(ChatLines, AnInterruptIsSeenWhoeverReceivedIt) {
  const InterruptGuard guard;
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, &before);
  Pipe input;
  input.Write("read already\nand this\nhalf a li");
  ChatLines lines(input.ends[0]);
  std::string line;
  ASSERT_EQ(lines.Next(line), What::kLine);
  std::thread other([&] {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    raise(SIGINT);
  });
  other.join();
  EXPECT_EQ(lines.Next(line), What::kInterrupt);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  InterruptGuard::Clear();
  input.Write("next\n");
  ASSERT_EQ(lines.Next(line), What::kLine);
  EXPECT_EQ(line, "next");
}

}  // namespace
}  // namespace octavo
