#include "octavo/ops/profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "octavo/ops/site.h"

namespace octavo::ops {
namespace {

void Merge(std::vector<ProfileEntry>& into, const ProfileEntry& entry) {
  for (ProfileEntry& one : into) {
    if (one.site == entry.site && one.kind == entry.kind && one.pass == entry.pass) {
      one.calls += entry.calls;
      one.seconds += entry.seconds;
      one.macs += entry.macs;
      one.bytes += entry.bytes;
      return;
    }
  }
  into.push_back(entry);
}

std::string Line(const ProfileEntry& entry, double total) {
  return fmt::format("{:<52} {:<11} {:<9} {:>6} {:>9.4f} {:>5.1f} % {:>8} {:>8}\n", entry.site, entry.kind, entry.pass,
                     entry.calls, entry.seconds, total > 0 ? 100 * entry.seconds / total : 0,
                     entry.macs > 0 ? fmt::format("{:.1f}", entry.macs / entry.seconds * 1e-9) : "",
                     entry.bytes > 0 ? fmt::format("{:.1f}", entry.bytes / entry.seconds * 1e-9) : "");
}

}  // namespace

void Profile::Add(std::string_view site, std::string_view kind, std::string_view pass, double seconds, double macs,
                  double bytes) {
  const std::string key = fmt::format("{}\n{}\n{}", site, kind, pass);
  const auto [at, added] = index_.emplace(key, entries_.size());
  if (added) entries_.push_back({std::string(site), std::string(kind), std::string(pass), 0, 0, 0, 0});
  ProfileEntry& entry = entries_[at->second];
  ++entry.calls;
  entry.seconds += seconds;
  entry.macs += macs;
  entry.bytes += bytes;
}

double Profile::seconds() const {
  double total = 0;
  for (const ProfileEntry& entry : entries_) total += entry.seconds;
  return total;
}

double Profile::SecondsOf(std::string_view kind) const {
  double total = 0;
  for (const ProfileEntry& entry : entries_) total += entry.kind == kind ? entry.seconds : 0;
  return total;
}

std::string Profile::Table() const {
  std::vector<ProfileEntry> sites, kinds;
  for (ProfileEntry entry : entries_) {
    entry.site = ScannedPath(entry.site);
    Merge(sites, entry);
    entry.site = "all";
    entry.pass = "";
    Merge(kinds, entry);
  }
  std::stable_sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  std::string table = fmt::format("{:<52} {:<11} {:<9} {:>6} {:>9} {:>7} {:>8} {:>8}\n", "site", "kind", "pass",
                                  "calls", "seconds", "share", "GMAC/s", "GB/s");
  for (const ProfileEntry& entry : sites) table += Line(entry, seconds());
  for (const ProfileEntry& entry : kinds) table += Line(entry, seconds());
  return table;
}

Timed::Timed(Profile* profile, std::string_view site, std::string_view kind, std::string_view pass, double macs,
             double bytes)
    : profile_(profile), macs_(macs), bytes_(bytes) {
  if (profile_ == nullptr) return;
  site_ = site;
  kind_ = kind;
  pass_ = pass;
  start_ = std::chrono::steady_clock::now();
}

Timed::~Timed() {
  if (profile_ == nullptr) return;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
  profile_->Add(site_, kind_, pass_, passed.count(), macs_, bytes_);
}

}  // namespace octavo::ops
