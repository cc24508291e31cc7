// Loss and perplexity of a model over a text: what `octavo eval` prints. Deterministic: tokens are added in the order
// of the text, whatever the number of threads.
#pragma once

#include <functional>

#include "octavo/eval/mean.h"
#include "octavo/eval/subject.h"
#include "octavo/eval/windows.h"

namespace octavo::eval {

struct TextLoss {
  Mean loss;  // in nats per token
  int64_t windows = 0;

  double perplexity() const { return std::exp(loss.mean()); }
  // Of the perplexity, to first order.
  double perplexity_error() const { return perplexity() * loss.standard_error(); }
};

// Called after each window with the number done and the tokens so far; may be empty.
using WindowDone = std::function<void(int64_t windows, const Mean& loss)>;

// A loss that is no number ends it with a numbers error that names the token.
TextLoss EvaluateText(const Subject& subject, const Windows& windows, ThreadPool& pool, const WindowDone& done = {});

}  // namespace octavo::eval
