// A model as evaluation sees it: the decoder, who answers its dots, the recipe's state, and a way to run it over one
// window of tokens layer by layer, so that two of them can go in lock step. Used by text_loss.h and compare.h; whoever
// loads models fills it in. Keeps no logits: they are asked for a few rows at a time.
#pragma once

#include <cstdint>
#include <span>

#include "octavo/models/model.h"
#include "octavo/ops/context.h"
#include "octavo/ops/interceptor.h"
#include "octavo/ops/rows.h"
#include "octavo/ops/state.h"
#include "octavo/quant/plan.h"

namespace octavo::eval {

struct Subject {
  models::Model* model = nullptr;
  ops::Interceptor* provider = nullptr;    // null: everything in float
  const ops::StateStore* state = nullptr;  // of recipes that have one
  // The head's activation scale depends on other rows, so the logits of a window have to be made in one go.
  bool coupled_head = false;
};

// Whether the plan couples the rows of the head.
bool HasCoupledHead(const quant::Plan& plan);

// A usage error names the first token that the vocabulary does not have.
void CheckTokens(std::span<const int32_t> tokens, int64_t vocabulary);

// One subject over one window at a time. Bits do not depend on the number of threads, nor on how rows of logits are
// cut.
class WindowRun {
 public:
  WindowRun(const Subject& subject, ThreadPool& pool);

  void Start(std::span<const int32_t> tokens);
  int layers() const { return subject_.model->layers(); }
  void Layer(int index);
  void Finish();  // the last norm
  // All of it.
  void Run(std::span<const int32_t> tokens);

  // Rows [begin, end) of the window's logits: f32 [end - begin, V].
  Tensor Logits(int64_t begin, int64_t end);
  // How many rows to ask for at once.
  int64_t rows_at_once() const { return subject_.coupled_head ? rows_.length : kRowsAtOnce; }

  // Who sees the dots instead of the subject's own provider, which it must ask.
  void set_interceptor(ops::Interceptor* interceptor) { context_.interceptor = interceptor; }
  ops::Context& context() { return context_; }

 private:
  static constexpr int64_t kRowsAtOnce = 16;

  Subject subject_;
  kernels::Workspace workspace_;
  ops::Context context_;
  ops::Rows rows_;
  ops::Var x_;
  Tensor all_logits_;  // of a coupled head
};

}  // namespace octavo::eval
