#include "octavo/engine/adapters.h"

#include <algorithm>
#include <utility>

#include "octavo/weights/peft.h"

namespace octavo::engine {
namespace {

constexpr size_t kMostName = 256;

// Names stand in lists, in paths and in logs.
void RequireName(const std::string& name) {
  if (name.empty()) ThrowUsage("an adapter needs a name");
  if (name.size() > kMostName) ThrowUsage("an adapter's name has {} bytes, at most {}", name.size(), kMostName);
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::ranges::any_of(name, control)) ThrowUsage("an adapter's name holds a control character");
}

}  // namespace

void Adapters::RequireFree(const std::string& name) const {
  if (name == reserved_) {
    throw NameTaken(fmt::format("an adapter cannot be called '{}': requests of that name mean the model", name));
  }
  if (entries_.contains(name)) throw NameTaken(fmt::format("an adapter '{}' is loaded already", name));
}

void Adapters::Reserve(const std::string& name) {
  const std::lock_guard lock(mutex_);
  reserved_ = name;
  if (entries_.contains(name)) {
    throw NameTaken(fmt::format("the model and an adapter are both called '{}'", name));
  }
}

void Adapters::Load(const std::string& name, const std::filesystem::path& folder) {
  RequireName(name);
  {
    const std::lock_guard lock(mutex_);
    RequireFree(name);
  }
  // Reading takes its time; requests go on meanwhile.
  auto adapter = std::make_shared<const quant::LoraAdapter>(weights::ReadPeftAdapter(folder, name, model_));
  const std::lock_guard lock(mutex_);
  RequireFree(name);
  const int number = provider_.Add(adapter);
  entries_.emplace(name, Entry{number, std::move(adapter)});
}

void Adapters::Load(quant::LoraAdapter adapter) {
  RequireName(adapter.name);
  auto kept = std::make_shared<const quant::LoraAdapter>(std::move(adapter));
  const std::lock_guard lock(mutex_);
  RequireFree(kept->name);
  const int number = provider_.Add(kept);
  entries_.emplace(kept->name, Entry{number, kept});
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
