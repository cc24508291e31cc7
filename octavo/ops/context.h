// The first argument of everything that computes: threads, instruction set, scratch memory, who answers ops, where
// gradients are recorded, and where in the model we are. One per run, passed by reference, never stored. Explicit, not
// thread-local: two requests or two tests may run under different providers.
#pragma once

#include <string>
#include <string_view>

#include "octavo/base/rng.h"
#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/workspace.h"
#include "octavo/ops/site.h"
#include "octavo/ops/site_counts.h"

namespace octavo::ops {

class Interceptor;
class Profile;
class StateStore;
struct AuxLosses;
struct RematFrame;
struct RematPolicy;
struct Rows;
class Tape;
class UpdateSink;

struct Context {
  Context(ThreadPool& threads, kernels::Isa instructions, kernels::Workspace& scratch)
      : pool(threads), isa(instructions), workspace(scratch) {}

  ThreadPool& pool;
  kernels::Isa isa;
  kernels::Workspace& workspace;
  Interceptor* interceptor = nullptr;  // answers ops before the float version does
  Tape* tape = nullptr;                // null: inference
  const StateStore* state = nullptr;   // read-only during a step
  UpdateSink* updates = nullptr;       // null: state does not change (evaluation, replay)
  const RematPolicy* remat = nullptr;  // null: nothing is computed again in the backward pass
  const Rows* rows = nullptr;          // the sequences of this call; null: one sequence
  Profile* profile = nullptr;          // null: nothing is timed
  AuxLosses* aux = nullptr;            // where layers leave their own losses; null: not wanted
  RngKey key{};                        // of the run and the step; ops fold in their site
  bool training = false;               // dropout is on
  ModelId model = 0;
  RematFrame* frame = nullptr;  // of the layer that remat runs now; set by Checkpoint

  // The site of the next op of this kind in the current module, and counts it.
  Site NextSite(OpKind op);
  // The same without counting it.
  Site PeekSite(OpKind op) const;
  // Forgets the counts: called at the start of each call of a model.
  void StartModel() { counts_.Clear(); }
  const std::string& path() const { return path_; }

  // While it is set, it gets what each count was before its first use: what a replay of the same ops has to start from.
  SiteCounts* touched = nullptr;
  // Puts another place and other counts in, and gives back the old ones: for replays.
  void SwapPlace(std::string& path, SiteCounts& counts) { path_.swap(path), counts_.Swap(counts); }

 private:
  friend class Scope;
  std::string path_;
  SiteCounts counts_;
};

// Enters a module for the length of a scope: paths of sites inside it get `name` appended.
class Scope {
 public:
  Scope(Context& context, std::string_view name);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Context& context_;
  size_t length_;
};

}  // namespace octavo::ops
