// TensorBoard event files: scalars by tag and step. A file is a list of records (length, checksum, bytes, checksum),
// each a protocol-buffer Event; both are few lines and written here by hand. Only scalars, only writing.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octavo::train {

using Scalars = std::vector<std::pair<std::string, double>>;

// The bytes of the parts, for tests.
std::string EventRecord(std::string_view event);  // framed with length and checksums
std::string VersionEvent(double wall_time);
std::string ScalarEvent(double wall_time, int64_t step, const Scalars& scalars);
// TensorBoard forgets what earlier files said about this step and later ones: a run that went on from a checkpoint.
std::string RestartEvent(double wall_time, int64_t step);

class EventFile {
 public:
  // A new file events.out.tfevents.TIME.HOST.PID in `folder`, which is made if it is missing. `first_step` > 0 says
  // that the run goes on there.
  EventFile(const std::filesystem::path& folder, int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Written through to the system at once. A disk that is full is a job error.
  void Add(int64_t step, const Scalars& scalars);

 private:
  void Append(const std::string& event);

  std::filesystem::path path_;
  std::FILE* file_ = nullptr;
};

}  // namespace octavo::train
