// How many ops of each kind ran in each module of a model's call: the ordinals of sites. A small hash table in three
// arrays: a served token counts some three hundred ops between products that push everything out of the caches, and the
// nodes of a tree would cost it a percent. Context has one; remat copies parts of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ops/site.h"

namespace octavo::ops {

class SiteCounts {
 public:
  // The count of a module and kind; a new one is 0. Valid until the next call.
  int& At(std::string_view path, OpKind op);
  int Find(std::string_view path, OpKind op) const;  // 0 when it is not there
  bool Has(std::string_view path, OpKind op) const;

  size_t size() const { return entries_.size(); }
  void Clear();
  void Swap(SiteCounts& other);

 private:
  struct Entry {
    size_t hash;
    uint32_t begin, length;  // of the path in names_
    OpKind op;
    int count;
  };
  static size_t HashOf(std::string_view path, OpKind op);
  const Entry* Lookup(std::string_view path, OpKind op) const;
  bool Is(const Entry& entry, size_t hash, std::string_view path, OpKind op) const;
  // The place in table_ where it is or belongs; the table is not full.
  size_t PlaceOf(size_t hash, std::string_view path, OpKind op) const;
  void Grow();

  std::vector<Entry> entries_;
  std::vector<uint32_t> table_;  // entry + 1, or 0; a power of two, half full at most
  std::string names_;
};

}  // namespace octavo::ops
