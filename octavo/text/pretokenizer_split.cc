#include "octavo/text/pretokenizer_split.h"

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo::text {
namespace {

// Runs of matches and runs of the rest stay together.
std::vector<Cut> JoinRuns(const std::vector<Cut>& cuts) {
  std::vector<Cut> out;
  bool previous = false;
  for (const Cut& cut : cuts) {
    if (cut.match == previous && !out.empty()) {
      out.back().end = cut.end;
    } else {
      out.push_back(cut);
    }
    previous = cut.match;
  }
  return out;
}

// A match that follows a stretch of the rest joins it.
std::vector<Cut> JoinPrevious(const std::vector<Cut>& cuts) {
  std::vector<Cut> out;
  bool previous = false;
  for (const Cut& cut : cuts) {
    if (cut.match && !previous && !out.empty()) {
      out.back().end = cut.end;
    } else {
      out.push_back(cut);
    }
    previous = cut.match;
  }
  return out;
}

// A match that precedes a stretch of the rest joins it.
std::vector<Cut> JoinNext(const std::vector<Cut>& cuts) {
  std::vector<Cut> out;
  bool previous = false;
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    if (cut->match && !previous && !out.empty()) {
      out.back().begin = cut->begin;
    } else {
      out.push_back(*cut);
    }
    previous = cut->match;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace

SplitBehavior ReadBehavior(std::string_view name, std::string_view where) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  throw Error(ErrorCode::kFile, fmt::format("{}: split behavior '{}' is not known", where, name.substr(0, 60)),
              "known: Removed Isolated MergedWithPrevious MergedWithNext Contiguous");
}

void PushCuts(const AlignedText& text, const std::vector<Cut>& cuts, SplitBehavior behavior, std::vector<Piece>& out) {
  const auto push = [&](const std::vector<Cut>& list) {
    for (const Cut& cut : list) {
      if (cut.begin < cut.end) out.push_back({text.Slice(cut.begin, cut.end)});
    }
  };
  switch (behavior) {
    case SplitBehavior::kIsolated:
      push(cuts);
      return;
    case SplitBehavior::kContiguous:
      push(JoinRuns(cuts));
      return;
    case SplitBehavior::kMergedWithPrevious:
      push(JoinPrevious(cuts));
      return;
    case SplitBehavior::kMergedWithNext:
      push(JoinNext(cuts));
      return;
    case SplitBehavior::kRemoved:
      break;
  }
  for (const Cut& cut : cuts) {
    if (!cut.match && cut.begin < cut.end) out.push_back({text.Slice(cut.begin, cut.end)});
  }
}

}  // namespace octavo::text
