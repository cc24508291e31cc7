// A checkpoint written by a thread of its own, one parameter behind the one that is being read and quantized: the disk
// works while the cores do. One parameter waits at the most, so memory stays bounded. An error of the writer is thrown
// by the next call here.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "octavo/checkpoint/checkpoint_writer.h"

namespace octavo::convert {

class BackgroundWriter {
 public:
  using Tensors = std::vector<std::pair<TensorEntry, Tensor>>;

  // The writer is this object's alone until Finish has returned or the object is gone.
  explicit BackgroundWriter(CheckpointWriter& writer);
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // Waits while the parameter before it is still waiting.
  void Add(std::string parameter, Tensors tensors, std::optional<ManifestQuantized> described);
  // Everything is with the writer when this returns.
  void Finish();

 private:
  struct Job {
    std::string parameter;
    Tensors tensors;
    std::optional<ManifestQuantized> described;
  };
  void Run();
  void Write(const Job& job);

  CheckpointWriter& writer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Job> waiting_;
  bool ending_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace octavo::convert
