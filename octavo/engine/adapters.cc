#include "octavo/engine/adapters.h"

#include <utility>

#include "octavo/base/error.h"
#include "octavo/weights/peft.h"

namespace octavo::engine {

void Adapters::Load(const std::string& name, const std::filesystem::path& folder) {
  if (name.empty()) ThrowUsage("an adapter needs a name");
  {
    const std::lock_guard lock(mutex_);
    if (entries_.contains(name)) ThrowUsage("an adapter '{}' is loaded already", name);
  }
  // Reading takes its time; requests go on meanwhile.
  auto adapter = std::make_shared<const quant::LoraAdapter>(weights::ReadPeftAdapter(folder, name, model_));
  const std::lock_guard lock(mutex_);
  if (entries_.contains(name)) ThrowUsage("an adapter '{}' is loaded already", name);
  const int number = provider_.Add(adapter);
  entries_.emplace(name, Entry{number, std::move(adapter)});
}

bool Adapters::Unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return entries_.erase(name) > 0;
}

AdapterUse Adapters::Find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find(name);
  if (at == entries_.end()) return {};
  return {at->second.number, at->second.adapter};
}

std::vector<std::string> Adapters::Names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

int64_t Adapters::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t total = 0;
  for (const auto& [name, entry] : entries_) total += entry.adapter->bytes();
  return total;
}

}  // namespace octavo::engine
