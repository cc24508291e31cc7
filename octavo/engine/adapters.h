// The LoRA adapters of a served model, by the names that requests use: loaded at the start or by an admin call while
// others run, unloaded likewise; requests that use one keep it. Any thread.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "octavo/engine/scheduler.h"
#include "octavo/models/model.h"
#include "octavo/quant/lora.h"

namespace octavo::engine {

class Adapters : public AdapterNames {
 public:
  // Both must outlive this.
  Adapters(const models::Model& model, quant::LoraProvider& provider) : model_(model), provider_(provider) {}

  // A PEFT folder under a name. A name that is taken is a usage error, as is everything weights::ReadPeftAdapter
  // refuses.
  void Load(const std::string& name, const std::filesystem::path& folder);
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
  const models::Model& model_;
  quant::LoraProvider& provider_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

}  // namespace octavo::engine
