#include "octavo/base/publish.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int Entries(const fs::path& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

Error Caught(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "expected an Error";
  return Error(ErrorCode::kJob, "none");
}

TEST(PublishFile, WritesAndReplaces) {
  const TempFolder folder;
  PublishFile(folder / "a.txt", "one");
  EXPECT_EQ(Read(folder / "a.txt"), "one");
  PublishFile(folder / "a.txt", "two");
  EXPECT_EQ(Read(folder / "a.txt"), "two");
  EXPECT_EQ(Entries(folder.path()), 1);
  struct stat status;
  ASSERT_EQ(::stat((folder / "a.txt").c_str(), &status), 0);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  EXPECT_EQ(status.st_mode & 0777, 0666 & ~mask);  // as any program would make it
}

TEST(PublishFile, LargeContentInPieces) {
  const TempFolder folder;
  std::string expected;
  FilePublisher publisher(folder / "big");
  for (int i = 0; i < 300; ++i) {
    const std::string piece(static_cast<size_t>(i) * 37, static_cast<char>('a' + i % 26));
    expected += piece;
    publisher.Write(piece);
  }
  publisher.Write(std::string(3 << 20, 'z'));
  expected += std::string(3 << 20, 'z');
  EXPECT_EQ(publisher.size(), expected.size());
  publisher.Publish();
  EXPECT_EQ(Read(folder / "big"), expected);
}

TEST(PublishFile, TheStepsComeInOrder) {
  const TempFolder folder;
  std::vector<std::string> steps;
  PublishFile(folder / "a", "x", Replace::kYes, [&](PublishStep step, const fs::path& path) {
    steps.push_back(std::string(NameOf(step)) + (path == folder / "a" ? " target" : ""));
    return 0;
  });
  EXPECT_THAT(steps, ElementsAre("create", "write", "sync", "rename target", "sync folder"));
}

TEST(PublishFile, WithoutPublishNothingAppears) {
  const TempFolder folder;
  PublishFile(folder / "a", "old");
  {
    FilePublisher publisher(folder / "a");
    publisher.Write("new");
  }
  EXPECT_EQ(Read(folder / "a"), "old");
  EXPECT_EQ(Entries(folder.path()), 1);
}

TEST(PublishFile, RefusesToReplaceWhenTold) {
  const TempFolder folder;
  PublishFile(folder / "a", "old");
  const Error error = Caught([&] { PublishFile(folder / "a", "new", Replace::kNo); });
  EXPECT_EQ(error.code(), ErrorCode::kUsage);
  EXPECT_THAT(error.what(), HasSubstr("a exists"));
  // Also when the file appears while we write.
  FilePublisher late(folder / "b", Replace::kNo);
  late.Write("late");
  PublishFile(folder / "b", "first");
  EXPECT_THROW(late.Publish(), Error);
  EXPECT_EQ(Read(folder / "b"), "first");
}

TEST(PublishFile, EveryFailureIsClearAndLeavesTheOldFile) {
  const struct {
    PublishStep step;
    int number;
    const char* text;
  } cases[] = {
      {PublishStep::kCreate, EROFS, "Read-only file system\nthe disk is read-only"},
      {PublishStep::kCreate, EACCES, "Permission denied\nno permission"},
      {PublishStep::kWrite, ENOSPC, "No space left on device\nthe disk or the quota is full; nothing was published"},
      {PublishStep::kWrite, EDQUOT, "the disk or the quota is full"},
      {PublishStep::kSync, EIO, "cannot put on disk: Input/output error"},
      {PublishStep::kRename, ENOSPC, "cannot rename into place"},
  };
  for (const auto& one : cases) {
    const TempFolder folder;
    PublishFile(folder / "a", "old");
    const Error error = Caught([&] {
      PublishFile(folder / "a", "new", Replace::kYes,
                  [&](PublishStep step, const fs::path&) { return step == one.step ? one.number : 0; });
    });
    EXPECT_EQ(error.code(), ErrorCode::kJob);
    EXPECT_THAT(error.what(), HasSubstr((folder / "a").string()));
    EXPECT_THAT(error.what(), HasSubstr(one.text));
    EXPECT_EQ(Read(folder / "a"), "old");
    EXPECT_EQ(Entries(folder.path()), 1) << "a temporary file was left";
  }
}

TEST(PublishFile, MissingFolderAndBadNames) {
  const TempFolder folder;
  EXPECT_THAT(Caught([&] { PublishFile(folder / "no/such/a", "x"); }).what(), HasSubstr("does not exist"));
  EXPECT_EQ(Caught([&] { PublishFile("", "x"); }).code(), ErrorCode::kUsage);
  EXPECT_EQ(Caught([&] { PublishFile("/", "x"); }).code(), ErrorCode::kUsage);
  EXPECT_EQ(Caught([&] { PublishFile(folder / "..", "x"); }).code(), ErrorCode::kUsage);
}

// A real limit of the system, not an injected one.
TEST(PublishFile, FileSizeLimit) {
  const TempFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100000, 100000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      PublishFile(folder / "a", std::string(300000, 'x'));
    } catch (const Error& error) {
      ::_exit(std::string(error.what()).find("size limit") != std::string::npos ? 7 : 8);
    }
    ::_exit(9);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(Entries(folder.path()), 0);
}

// Runs `publish` in a child that dies before its step number `n`. False when it had fewer steps and lived.
bool DiesAtStep(int n, const std::function<void(const PublishFault&)>& publish) {
  const pid_t child = ::fork();
  if (child == 0) {
    int step = 0;
    publish([&](PublishStep, const fs::path&) {
      if (step++ == n) ::_exit(9);
      return 0;
    });
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WEXITSTATUS(status) == 9;
}

TEST(PublishFile, ACrashAtAnyStepLeavesOldOrNew) {
  int steps = 0;
  bool saw_old = false, saw_new = false;
  for (;; ++steps) {
    const TempFolder folder;
    PublishFile(folder / "a", "old");
    const std::string content(3 << 20, 'n');
    if (!DiesAtStep(steps,
                    [&](const PublishFault& fault) { PublishFile(folder / "a", content, Replace::kYes, fault); })) {
      break;
    }
    const std::string found = Read(folder / "a");
    saw_old |= found == "old";
    saw_new |= found == content;
    EXPECT_TRUE(found == "old" || found == content) << "step " << steps;
    RemoveTemporaries(folder / "a");
    EXPECT_EQ(Entries(folder.path()), 1) << "step " << steps;
  }
  EXPECT_EQ(steps, 7);  // create, three writes of a full buffer, sync, rename, sync of the folder
  EXPECT_TRUE(saw_old);
  EXPECT_TRUE(saw_new);
}

void WriteTree(const fs::path& target, std::string_view mark, Replace replace, const PublishFault& fault) {
  FolderPublisher publisher(target, replace, fault);
  publisher.WriteFile("a.txt", std::string(mark) + "a");
  publisher.WriteFile("sub/b.txt", std::string(mark) + "b");
  publisher.Publish();
}

std::map<std::string, std::string> Tree(const fs::path& folder) {
  std::map<std::string, std::string> tree;
  if (!fs::exists(folder)) return tree;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) tree[entry.path().lexically_relative(folder).string()] = Read(entry.path());
  }
  return tree;
}

const std::map<std::string, std::string> kOldTree = {{"a.txt", "olda"}, {"sub/b.txt", "oldb"}};
const std::map<std::string, std::string> kNewTree = {{"a.txt", "newa"}, {"sub/b.txt", "newb"}};

TEST(PublishFolder, AppearsWholeAndReplaces) {
  const TempFolder folder;
  WriteTree(folder / "m/", "old", Replace::kNo, nullptr);  // a trailing slash is no other name
  EXPECT_EQ(Tree(folder / "m"), kOldTree);
  WriteTree(folder / "m", "new", Replace::kYes, nullptr);
  EXPECT_EQ(Tree(folder / "m"), kNewTree);
  EXPECT_EQ(Entries(folder.path()), 1);
  WriteTree(folder / "n", "new", Replace::kYes, nullptr);  // nothing there to replace
  EXPECT_EQ(Tree(folder / "n"), kNewTree);
}

TEST(PublishFolder, RefusesWhatExists) {
  const TempFolder folder;
  WriteTree(folder / "m", "old", Replace::kNo, nullptr);
  EXPECT_EQ(Caught([&] { WriteTree(folder / "m", "new", Replace::kNo, nullptr); }).code(), ErrorCode::kUsage);
  EXPECT_EQ(Tree(folder / "m"), kOldTree);
  PublishFile(folder / "file", "x");
  EXPECT_THAT(Caught([&] { WriteTree(folder / "file", "new", Replace::kYes, nullptr); }).what(),
              HasSubstr("is not a folder"));
  // An empty folder that appears meanwhile is not replaced either.
  FolderPublisher late(folder / "late");
  late.WriteFile("a", "x");
  fs::create_directory(folder / "late");
  EXPECT_THROW(late.Publish(), Error);
  EXPECT_TRUE(fs::is_empty(folder / "late"));
}

TEST(PublishFolder, FilesStayInside) {
  const TempFolder folder;
  FolderPublisher publisher(folder / "m");
  for (const char* bad : {"../x", "/etc/x", "", ".", "a/../../x", "a/"}) {
    EXPECT_EQ(Caught([&] { publisher.WriteFile(bad, "x"); }).code(), ErrorCode::kUsage) << bad;
  }
  publisher.WriteFile("a", "1");
  EXPECT_THROW(publisher.WriteFile("a", "2"), Error);  // twice the same file
}

TEST(PublishFolder, AFileThatWasNotClosedStopsPublication) {
  const TempFolder folder;
  {
    FolderPublisher publisher(folder / "m");
    {
      FileWriter writer = publisher.Create("a");
      writer.Write("lost");
    }
    EXPECT_THROW(publisher.Publish(), Error);
  }
  EXPECT_EQ(Entries(folder.path()), 0);
}

TEST(PublishFolder, AFailureAtAnyStepLeavesTheOldFolder) {
  for (int failing = 0;; ++failing) {
    const TempFolder folder;
    WriteTree(folder / "m", "old", Replace::kNo, nullptr);
    int step = 0;
    bool renamed = false, failed = false;
    try {
      WriteTree(folder / "m", "new", Replace::kYes, [&](PublishStep kind, const fs::path&) {
        if (step++ == failing) return ENOSPC;
        if (kind == PublishStep::kRename) renamed = true;
        return 0;
      });
    } catch (const Error& error) {
      failed = true;
      EXPECT_EQ(error.code(), ErrorCode::kJob);
    }
    if (!failed) {
      EXPECT_GT(failing, 10);
      break;
    }
    // After the rename only the fsync of the folder can fail: then the new one is in place.
    EXPECT_EQ(Tree(folder / "m"), renamed ? kNewTree : kOldTree) << failing;
    if (!renamed) {
      EXPECT_EQ(Entries(folder.path()), 1) << failing;
    }
  }
}

TEST(PublishFolder, ACrashAtAnyStepLeavesOldOrNew) {
  for (bool existed : {true, false}) {
    int steps = 0;
    for (;; ++steps) {
      const TempFolder folder;
      if (existed) WriteTree(folder / "m", "old", Replace::kNo, nullptr);
      if (!DiesAtStep(steps, [&](const PublishFault& fault) {
            WriteTree(folder / "m", "new", existed ? Replace::kYes : Replace::kNo, fault);
          })) {
        break;
      }
      const auto tree = Tree(folder / "m");
      const auto before = existed ? kOldTree : std::map<std::string, std::string>();
      EXPECT_TRUE(tree == before || tree == kNewTree) << "step " << steps;
      RemoveTemporaries(folder / "m");
      EXPECT_EQ(Entries(folder.path()), fs::exists(folder / "m") ? 1 : 0) << "step " << steps;
    }
    EXPECT_GT(steps, 8);
  }
}

TEST(RemoveTemporaries, LeavesOtherFilesAlone) {
  const TempFolder folder;
  for (const char* name :
       {".m.octavo-tmp-0123456789abcdef", "m", ".m.octavo-tmp-short", ".mm.octavo-tmp-0123456789abcdef"}) {
    PublishFile(folder / name, "x");
  }
  EXPECT_EQ(RemoveTemporaries(folder / "m"), 1);
  EXPECT_EQ(Entries(folder.path()), 3);
  EXPECT_EQ(RemoveTemporaries(folder / "no/such"), 0);
}

}  // namespace
}  // namespace octavo
