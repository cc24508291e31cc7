// A sequence of a loaded model that is closed with its owner. It keeps the model, and the adapter it runs with, alive,
// so that prefixes and decode states may go after the engine that made them. Used by engine.h.
#pragma once

#include <memory>
#include <utility>

#include "octavo/engine/runner.h"

namespace octavo::engine {

class HeldSequence {
 public:
  HeldSequence() = default;
  HeldSequence(std::shared_ptr<Runner> runner, SequenceId id, std::shared_ptr<const void> adapter)
      : runner_(std::move(runner)), id_(id), adapter_(std::move(adapter)) {}
  HeldSequence(HeldSequence&& other) noexcept { Swap(other); }
  HeldSequence& operator=(HeldSequence&& other) noexcept {
    HeldSequence(std::move(other)).Swap(*this);
    return *this;
  }
  ~HeldSequence() {
    if (runner_ != nullptr) runner_->Close(id_);
  }

  bool open() const { return runner_ != nullptr; }
  const Runner* runner() const { return runner_.get(); }  // null: moved from, or none
  SequenceId id() const { return id_; }
  int64_t length() const { return open() ? runner_->length(id_) : 0; }
  // A copy that shares the pages.
  HeldSequence Fork() const { return {runner_, runner_->Fork(id_), adapter_}; }

 private:
  void Swap(HeldSequence& other) noexcept {
    std::swap(runner_, other.runner_);
    std::swap(id_, other.id_);
    std::swap(adapter_, other.adapter_);
  }

  std::shared_ptr<Runner> runner_;
  SequenceId id_ = 0;
  std::shared_ptr<const void> adapter_;
};

}  // namespace octavo::engine
