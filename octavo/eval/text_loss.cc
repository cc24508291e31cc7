#include "octavo/eval/text_loss.h"

#include "octavo/base/error.h"
#include "octavo/eval/row_numbers.h"

namespace octavo::eval {

TextLoss EvaluateText(const Subject& subject, const Windows& windows, ThreadPool& pool, const WindowDone& done) {
  CheckTokens(windows.tokens(), subject.model->config().vocab_size);
  WindowRun run(subject, pool);
  TextLoss result;
  std::vector<double> losses;
  for (int64_t w = 0; w < windows.count(); ++w) {
    const Window window = windows.At(w);
    run.Run(window.tokens);
    const auto length = static_cast<int64_t>(window.targets.size());
    for (int64_t begin = 0; begin < length; begin += run.rows_at_once()) {
      const int64_t end = std::min(length, begin + run.rows_at_once());
      const Tensor logits = run.Logits(begin, end);
      const std::span<const float> values = logits.Values<float>();
      const auto vocabulary = static_cast<size_t>(logits.dim(1));
      losses.assign(static_cast<size_t>(end - begin), 0);
      pool.ParallelFor(end - begin, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          losses[static_cast<size_t>(i)] = TokenLoss(values.subspan(static_cast<size_t>(i) * vocabulary, vocabulary),
                                                     window.targets[static_cast<size_t>(begin + i)]);
        }
      });
      for (const double loss : losses) {
        if (!std::isfinite(loss)) {
          throw Error(ErrorCode::kNumbers, fmt::format("the loss of token {} is {}", result.loss.count(), loss),
                      "the model's logits are not finite: octavo inspect --verify finds damaged weights");
        }
        result.loss.Add(loss);
      }
    }
    ++result.windows;
    if (done) done(result.windows, result.loss);
  }
  return result;
}

}  // namespace octavo::eval
