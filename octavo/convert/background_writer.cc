#include "octavo/convert/background_writer.h"

namespace octavo::convert {

BackgroundWriter::BackgroundWriter(CheckpointWriter& writer) : writer_(writer), thread_([this] { Run(); }) {}

BackgroundWriter::~BackgroundWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    waiting_.reset();  // only when something failed: nobody wants it any more
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void BackgroundWriter::Add(std::string parameter, Tensors tensors, std::optional<ManifestQuantized> described) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !waiting_ || error_; });
  if (error_) std::rethrow_exception(error_);
  waiting_ = Job{std::move(parameter), std::move(tensors), std::move(described)};
  changed_.notify_all();
}

void BackgroundWriter::Finish() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !waiting_ || error_; });
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (error_) std::rethrow_exception(error_);
}

void BackgroundWriter::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return waiting_ || ending_; });
    if (!waiting_) return;
    const Job job = *std::exchange(waiting_, std::nullopt);
    lock.unlock();
    changed_.notify_all();
    try {
      Write(job);
    } catch (...) {
      lock.lock();
      error_ = std::current_exception();
      changed_.notify_all();
      return;
    }
    lock.lock();
  }
}

void BackgroundWriter::Write(const Job& job) {
  writer_.Add(job.parameter, job.tensors);
  if (job.described) writer_.manifest().quantized[job.parameter] = *job.described;
}

}  // namespace octavo::convert
