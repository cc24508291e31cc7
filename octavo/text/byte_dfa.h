// Small finite automata over bytes: built as a graph of alternatives, made deterministic, trimmed to the states from
// which the end can still be reached. Used by structured output for everything in a schema that is regular: patterns,
// numbers, enumerations, names. Bounded: what would grow past a limit is a usage Error, never a long wait.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace octavo::text {

// The limits of one automaton; a schema holds many.
struct ByteDfaLimits {
  size_t nfa_states = 100'000;
  size_t dfa_states = 10'000;
  size_t work = 4'000'000;  // graph states visited while making it deterministic
};

// Deterministic. State 0 is the start; an automaton that accepts nothing has no states.
class ByteDfa {
 public:
  static constexpr int32_t kDead = -1;

  int32_t Next(int32_t state, uint8_t byte) const {
    return next_[static_cast<size_t>(state) * classes_ + class_of_[byte]];
  }
  bool accepts(int32_t state) const { return accepting_[static_cast<size_t>(state)]; }
  // Nothing may follow.
  bool final(int32_t state) const { return final_[static_cast<size_t>(state)]; }
  size_t size() const { return accepting_.size(); }
  bool empty() const { return accepting_.empty(); }
  bool Matches(std::string_view bytes) const;

  // The texts that both have, those of `a` that `b` has not, those of any of them.
  enum class Combine { kBoth, kFirstOnly, kEither };
  static ByteDfa Product(const ByteDfa& a, const ByteDfa& b, Combine how, const ByteDfaLimits& limits = {});
  // `"` before and behind every text. No text may hold a bare `"`.
  static ByteDfa Quoted(const ByteDfa& content);

 private:
  friend class ByteNfa;
  // A table of 256 targets per state, which becomes classes of bytes.
  struct Wide {
    std::vector<std::array<int32_t, 256>> next;
    std::vector<bool> accepting;
  };
  static ByteDfa FromWide(Wide wide);

  std::array<uint8_t, 256> class_of_{};
  size_t classes_ = 0;
  std::vector<int32_t> next_;
  std::vector<bool> accepting_, final_;
};

// A graph under construction. States are numbers; edges carry ranges of bytes, nothing, or a condition on the place.
class ByteNfa {
 public:
  explicit ByteNfa(const ByteDfaLimits& limits = {}) : limits_(limits) {}

  int NewState();
  void AddRange(int from, uint8_t low, uint8_t high, int to);
  void AddEmpty(int from, int to);
  // Only at the beginning, only at the end of the text.
  void AddBegin(int from, int to);
  void AddEnd(int from, int to);
  // A chain of single bytes; returns its last state.
  int AddLiteral(int from, std::string_view bytes);

  ByteDfa Determinize(int start, int end) const;

 private:
  enum class Kind : uint8_t { kRange, kEmpty, kBegin, kEnd };
  struct Edge {
    Kind kind;
    uint8_t low, high;
    int to;
  };
  using Items = std::vector<uint32_t>;  // state * 2 + 1 when nothing may be read any more
  void Close(Items& items, bool at_start, std::vector<uint32_t>& seen, uint32_t stamp) const;

  ByteDfaLimits limits_;
  std::vector<std::vector<Edge>> edges_;
};

}  // namespace octavo::text
