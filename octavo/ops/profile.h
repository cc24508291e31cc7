// Where the time of a step goes, by site: seconds, multiply-adds, bytes. Off unless the Context has one. Ops time
// themselves; the trainer adds "optimizer" and "data" entries, so that the table adds up to the step. Used by
// profile=true, the benchmark and its table.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::ops {

struct ProfileEntry {
  std::string site;  // "decoder/layers_0/mlp/wi_0", or what it is when it is no site: "optimizer"
  std::string kind;  // "matmul", "attention", "norm", "loss", "rope", "elementwise", "embedding", "optimizer", …
  std::string pass;  // "forward", "grad_lhs", "grad_rhs", "backward"
  int64_t calls = 0;
  double seconds = 0;
  double macs = 0, bytes = 0;
};

class Profile {
 public:
  void Add(std::string_view site, std::string_view kind, std::string_view pass, double seconds, double macs = 0,
           double bytes = 0);
  // In the order of first use.
  const std::vector<ProfileEntry>& entries() const { return entries_; }
  double seconds() const;                         // of all entries
  double SecondsOf(std::string_view kind) const;  // of one kind
  void Clear() { entries_.clear(), index_.clear(); }

  // One line per site (layers summed: "decoder/layers/mlp/wi_0") and pass, then one per kind, shares of the total.
  std::string Table() const;

 private:
  std::vector<ProfileEntry> entries_;
  std::map<std::string, size_t> index_;
};

// Times its own life into a profile; does nothing when there is none. Inner timers are not taken off outer ones, so
// they must not nest.
class Timed {
 public:
  Timed(Profile* profile, std::string_view site, std::string_view kind, std::string_view pass, double macs = 0,
        double bytes = 0);
  ~Timed();
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Profile* profile_;
  std::string site_, kind_, pass_;
  double macs_, bytes_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace octavo::ops
