// The LoRA adapters of a served model, by the names that requests use: loaded at the start or by an admin call while
// others run, unloaded likewise; requests that use one keep it. Any thread. Which folders may be read is for the caller
// to say.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/engine/scheduler.h"
#include "octavo/models/model.h"
#include "octavo/quant/lora.h"

namespace octavo::engine {

// The name is that of another adapter, or of the model.
class NameTaken : public Error {
 public:
  explicit NameTaken(std::string message) : Error(ErrorCode::kUsage, std::move(message), "choose another name") {}
};

class Adapters : public AdapterNames {
 public:
  // Both must outlive this.
  Adapters(const models::Model& model, quant::LoraProvider& provider) : model_(model), provider_(provider) {}

  // A name that no adapter may have: the model's own, which a server takes to mean the model. Throws NameTaken when one
  // has it already.
  void Reserve(const std::string& name);
  // A PEFT folder under a name. Throws NameTaken, a usage error for a name that no request could write, and what
  // weights::ReadPeftAdapter throws.
  void Load(const std::string& name, const std::filesystem::path& folder);
  // One in memory, under its own name; that its factors fit the model is for the caller to check.
  void Load(quant::LoraAdapter adapter);
  // False when there is none. Requests under way finish with it.
  bool Unload(const std::string& name);

  AdapterUse Find(const std::string& name) const override;
  std::vector<std::string> Names() const override;
  int64_t bytes() const;

 private:
  struct Entry {
    int number;
    std::shared_ptr<const quant::LoraAdapter> adapter;
  };
  void RequireFree(const std::string& name) const;  // with the lock held

  const models::Model& model_;
  quant::LoraProvider& provider_;
  mutable std::mutex mutex_;
  std::string reserved_;
  std::map<std::string, Entry> entries_;
};

}  // namespace octavo::engine
