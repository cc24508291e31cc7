#include "octavo/text/byte_dfa.h"

#include <algorithm>
#include <map>
#include <utility>

#include "octavo/base/error.h"

namespace octavo::text {
namespace {

[[noreturn]] void TooLarge(size_t states) { ThrowUsage("it needs more than {} states", states); }

}  // namespace

bool ByteDfa::Matches(std::string_view bytes) const {
  if (empty()) return false;
  int32_t state = 0;
  for (char byte : bytes) {
    state = Next(state, static_cast<uint8_t>(byte));
    if (state == kDead) return false;
  }
  return accepts(state);
}

ByteDfa ByteDfa::FromWide(Wide wide) {
  const size_t count = wide.next.size();
  // Backwards from the accepting states: what cannot reach one is dead.
  std::vector<std::vector<uint32_t>> sources(count);
  for (size_t state = 0; state < count; ++state) {
    int32_t last = kDead;
    for (int32_t to : wide.next[state]) {
      if (to != kDead && to != last) sources[static_cast<size_t>(to)].push_back(static_cast<uint32_t>(state));
      last = to;
    }
  }
  std::vector<bool> live(count);
  std::vector<uint32_t> work;
  for (size_t state = 0; state < count; ++state) {
    if (!wide.accepting[state]) continue;
    live[state] = true;
    work.push_back(static_cast<uint32_t>(state));
  }
  while (!work.empty()) {
    const uint32_t state = work.back();
    work.pop_back();
    for (uint32_t source : sources[state]) {
      if (live[source]) continue;
      live[source] = true;
      work.push_back(source);
    }
  }
  ByteDfa dfa;
  if (count == 0 || !live[0]) return dfa;
  std::vector<int32_t> name(count, kDead);
  int32_t names = 0;
  for (size_t state = 0; state < count; ++state) {
    if (live[state]) name[state] = names++;
  }
  // Bytes with the same target in every state are one class.
  std::map<std::vector<int32_t>, uint8_t> columns;
  std::vector<std::vector<int32_t>> by_class;
  for (size_t byte = 0; byte < 256; ++byte) {
    std::vector<int32_t> column;
    for (size_t state = 0; state < count; ++state) {
      if (!live[state]) continue;
      const int32_t to = wide.next[state][byte];
      column.push_back(to == kDead ? kDead : name[static_cast<size_t>(to)]);
    }
    const auto [place, fresh] = columns.try_emplace(std::move(column), static_cast<uint8_t>(columns.size()));
    if (fresh) by_class.push_back(place->first);
    dfa.class_of_[byte] = place->second;
  }
  dfa.classes_ = by_class.size();
  const auto states = static_cast<size_t>(names);
  dfa.next_.resize(states * dfa.classes_);
  dfa.final_.assign(states, true);
  for (size_t state = 0; state < states; ++state) {
    for (size_t c = 0; c < dfa.classes_; ++c) {
      dfa.next_[state * dfa.classes_ + c] = by_class[c][state];
      if (by_class[c][state] != kDead) dfa.final_[state] = false;
    }
  }
  for (size_t state = 0; state < count; ++state) {
    if (live[state]) dfa.accepting_.push_back(wide.accepting[state]);
  }
  return dfa;
}

ByteDfa ByteDfa::Product(const ByteDfa& a, const ByteDfa& b, Combine how, const ByteDfaLimits& limits) {
  if (b.empty()) return how == Combine::kBoth ? b : a;
  if (a.empty()) return how == Combine::kEither ? b : a;
  Wide wide;
  std::map<std::pair<int32_t, int32_t>, int32_t> names;
  std::vector<std::pair<int32_t, int32_t>> pairs;
  const auto name = [&](std::pair<int32_t, int32_t> pair) {
    const auto [place, fresh] = names.try_emplace(pair, static_cast<int32_t>(pairs.size()));
    if (fresh) {
      if (pairs.size() >= limits.dfa_states) TooLarge(limits.dfa_states);
      pairs.push_back(pair);
    }
    return place->second;
  };
  const auto combine = [&](bool first, bool second) {
    return how == Combine::kBoth ? first && second : how == Combine::kFirstOnly ? first && !second : first || second;
  };
  name({0, 0});
  for (size_t at = 0; at < pairs.size(); ++at) {
    const std::pair<int32_t, int32_t> pair = pairs[at];
    std::array<int32_t, 256> row;
    for (int byte = 0; byte < 256; ++byte) {
      const int32_t left = pair.first == kDead ? kDead : a.Next(pair.first, static_cast<uint8_t>(byte));
      const int32_t right = pair.second == kDead ? kDead : b.Next(pair.second, static_cast<uint8_t>(byte));
      const bool live = how == Combine::kEither ? left != kDead || right != kDead
                                                : left != kDead && (right != kDead || how == Combine::kFirstOnly);
      row[static_cast<size_t>(byte)] = live ? name({left, right}) : kDead;
    }
    wide.next.push_back(row);
    wide.accepting.push_back(
        combine(pair.first != kDead && a.accepts(pair.first), pair.second != kDead && b.accepts(pair.second)));
  }
  return FromWide(std::move(wide));
}

ByteDfa ByteDfa::Quoted(const ByteDfa& content) {
  if (content.empty()) return content;
  Wide wide;
  const size_t count = content.size();
  std::array<int32_t, 256> row;
  row.fill(kDead);
  row['"'] = 1;
  wide.next.push_back(row);
  for (size_t state = 0; state < count; ++state) {
    for (int byte = 0; byte < 256; ++byte) {
      const int32_t to = content.Next(static_cast<int32_t>(state), static_cast<uint8_t>(byte));
      row[static_cast<size_t>(byte)] = to == kDead ? kDead : to + 1;
    }
    if (content.accepts(static_cast<int32_t>(state))) row['"'] = static_cast<int32_t>(count + 1);
    wide.next.push_back(row);
  }
  row.fill(kDead);
  wide.next.push_back(row);
  wide.accepting.assign(count + 2, false);
  wide.accepting[count + 1] = true;
  return FromWide(std::move(wide));
}

int ByteNfa::NewState() {
  if (edges_.size() >= limits_.nfa_states) TooLarge(limits_.nfa_states);
  edges_.emplace_back();
  return static_cast<int>(edges_.size()) - 1;
}

void ByteNfa::AddRange(int from, uint8_t low, uint8_t high, int to) {
  edges_[static_cast<size_t>(from)].push_back({Kind::kRange, low, high, to});
}
void ByteNfa::AddEmpty(int from, int to) { edges_[static_cast<size_t>(from)].push_back({Kind::kEmpty, 0, 0, to}); }
void ByteNfa::AddBegin(int from, int to) { edges_[static_cast<size_t>(from)].push_back({Kind::kBegin, 0, 0, to}); }
void ByteNfa::AddEnd(int from, int to) { edges_[static_cast<size_t>(from)].push_back({Kind::kEnd, 0, 0, to}); }

int ByteNfa::AddLiteral(int from, std::string_view bytes) {
  for (char byte : bytes) {
    const int to = NewState();
    AddRange(from, static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), to);
    from = to;
  }
  return from;
}

void ByteNfa::Close(Items& items, bool at_start, std::vector<uint32_t>& seen, uint32_t stamp) const {
  Items work = std::exchange(items, {});
  while (!work.empty()) {
    const uint32_t item = work.back();
    work.pop_back();
    if (seen[item] == stamp) continue;
    seen[item] = stamp;
    items.push_back(item);
    for (const Edge& edge : edges_[item / 2]) {
      const auto to = static_cast<uint32_t>(edge.to) * 2;
      if (edge.kind == Kind::kEmpty || (edge.kind == Kind::kBegin && at_start)) work.push_back(to + item % 2);
      if (edge.kind == Kind::kEnd) work.push_back(to + 1);
    }
  }
  std::sort(items.begin(), items.end());
}

ByteDfa ByteNfa::Determinize(int start, int end) const {
  ByteDfa::Wide wide;
  std::map<Items, int32_t> names;
  std::vector<Items> sets;
  std::vector<uint32_t> seen(edges_.size() * 2, 0);
  uint32_t stamp = 0;
  size_t work = 0;
  const auto name = [&](Items items, bool at_start) {
    Close(items, at_start, seen, ++stamp);
    work += items.size() + 1;
    if (work > limits_.work) ThrowUsage("it takes more than {} steps to prepare", limits_.work);
    const auto [place, fresh] = names.try_emplace(items, static_cast<int32_t>(sets.size()));
    if (fresh) {
      if (sets.size() >= limits_.dfa_states) TooLarge(limits_.dfa_states);
      sets.push_back(std::move(items));
    }
    return place->second;
  };
  name({static_cast<uint32_t>(start) * 2}, true);
  for (size_t at = 0; at < sets.size(); ++at) {
    const Items items = sets[at];
    // The bytes fall into stretches between the ends of the ranges; one target each.
    std::array<bool, 257> cut{};
    std::vector<Edge> ranges;
    bool accepting = false;
    for (uint32_t item : items) {
      accepting = accepting || item / 2 == static_cast<uint32_t>(end);
      if (item % 2 == 1) continue;
      for (const Edge& edge : edges_[item / 2]) {
        if (edge.kind != Kind::kRange) continue;
        ranges.push_back(edge);
        cut[edge.low] = cut[edge.high + 1u] = true;
      }
    }
    std::array<int32_t, 256> row;
    row.fill(ByteDfa::kDead);
    int32_t target = ByteDfa::kDead;
    for (size_t byte = 0; byte < 256; ++byte) {
      if (cut[byte]) {
        Items next;
        for (const Edge& edge : ranges) {
          if (edge.low <= byte && byte <= edge.high) next.push_back(static_cast<uint32_t>(edge.to) * 2);
        }
        work += ranges.size();
        target = next.empty() ? ByteDfa::kDead : name(std::move(next), false);
      }
      row[byte] = target;
    }
    wide.next.push_back(row);
    wide.accepting.push_back(accepting);
  }
  return ByteDfa::FromWide(std::move(wide));
}

}  // namespace octavo::text
