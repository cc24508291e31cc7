#include "octavo/ops/site_counts.h"

#include <algorithm>
#include <functional>

namespace octavo::ops {

size_t SiteCounts::HashOf(std::string_view path, OpKind op) {
  return std::hash<std::string_view>()(path) + 31 * static_cast<size_t>(op);
}

bool SiteCounts::Is(const Entry& entry, size_t hash, std::string_view path, OpKind op) const {
  return entry.hash == hash && entry.op == op && std::string_view(names_).substr(entry.begin, entry.length) == path;
}

size_t SiteCounts::PlaceOf(size_t hash, std::string_view path, OpKind op) const {
  const size_t mask = table_.size() - 1;
  size_t place = hash & mask;
  while (table_[place] != 0 && !Is(entries_[table_[place] - 1], hash, path, op)) place = (place + 1) & mask;
  return place;
}

void SiteCounts::Grow() {
  table_.assign(std::max<size_t>(64, 2 * table_.size()), 0);
  const size_t mask = table_.size() - 1;
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t place = entries_[i].hash & mask;
    while (table_[place] != 0) place = (place + 1) & mask;
    table_[place] = static_cast<uint32_t>(i + 1);
  }
}

int& SiteCounts::At(std::string_view path, OpKind op) {
  if (2 * (entries_.size() + 1) > table_.size()) Grow();
  const size_t hash = HashOf(path, op), place = PlaceOf(hash, path, op);
  if (table_[place] == 0) {
    entries_.push_back({hash, static_cast<uint32_t>(names_.size()), static_cast<uint32_t>(path.size()), op, 0});
    names_ += path;
    table_[place] = static_cast<uint32_t>(entries_.size());
  }
  return entries_[table_[place] - 1].count;
}

const SiteCounts::Entry* SiteCounts::Lookup(std::string_view path, OpKind op) const {
  if (table_.empty()) return nullptr;
  const uint32_t found = table_[PlaceOf(HashOf(path, op), path, op)];
  return found == 0 ? nullptr : &entries_[found - 1];
}

int SiteCounts::Find(std::string_view path, OpKind op) const {
  const Entry* entry = Lookup(path, op);
  return entry == nullptr ? 0 : entry->count;
}

bool SiteCounts::Has(std::string_view path, OpKind op) const { return Lookup(path, op) != nullptr; }

void SiteCounts::Clear() {
  entries_.clear();
  names_.clear();
  std::fill(table_.begin(), table_.end(), 0);
}

void SiteCounts::Swap(SiteCounts& other) {
  entries_.swap(other.entries_);
  table_.swap(other.table_);
  names_.swap(other.names_);
}

}  // namespace octavo::ops
