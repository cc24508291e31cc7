#include "octavo/eval/subject.h"

#include "octavo/base/check.h"
#include "octavo/base/error.h"

namespace octavo::eval {

bool HasCoupledHead(const quant::Plan& plan) {
  for (const quant::SitePlan& site : plan.sites) {
    // A tied head stands in the decoder itself.
    const bool head = site.site.path == "decoder/logits_dense" || site.site.path == "decoder";
    if (head && site.coupling != quant::Coupling::kNone) return true;
  }
  return false;
}

void CheckTokens(std::span<const int32_t> tokens, int64_t vocabulary) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocabulary) continue;
    throw Error(ErrorCode::kUsage,
                fmt::format("token {} of the text is {}, the model's vocabulary has {}", i, tokens[i], vocabulary),
                "the tokenizer belongs to another model");
  }
}

WindowRun::WindowRun(const Subject& subject, ThreadPool& pool)
    : subject_(subject), context_(pool, kernels::ChooseIsa().isa, workspace_) {
  OCTAVO_CHECK(subject.model != nullptr);
  context_.interceptor = subject.provider;
  context_.state = subject.state;
}

void WindowRun::Start(std::span<const int32_t> tokens) {
  CheckTokens(tokens, subject_.model->config().vocab_size);
  const auto length = static_cast<int64_t>(tokens.size());
  rows_ = ops::RowsOfShape(1, length);
  context_.rows = &rows_;
  context_.StartModel();
  all_logits_ = Tensor();
  x_ = subject_.model->Embed(context_, Tensor::FromValues<int32_t>(Shape{1, length}, DType::kI32, tokens), rows_);
}

void WindowRun::Layer(int index) { x_ = subject_.model->Layer(context_, index, x_, rows_); }

void WindowRun::Finish() { x_ = subject_.model->Norm(context_, x_); }

void WindowRun::Run(std::span<const int32_t> tokens) {
  Start(tokens);
  for (int i = 0; i < layers(); ++i) Layer(i);
  Finish();
}

Tensor WindowRun::Logits(int64_t begin, int64_t end) {
  const int64_t vocabulary = subject_.model->config().vocab_size;
  if (subject_.coupled_head) {
    if (!all_logits_.defined()) {
      context_.StartModel();
      all_logits_ = subject_.model->Logits(context_, x_).value.Reshape({rows_.length, vocabulary}).Contiguous();
    }
    return all_logits_.Slice(0, begin, end).Contiguous();
  }
  context_.StartModel();  // every part is the head's first call
  const ops::Var part(x_.value.Slice(1, begin, end).Contiguous());
  return subject_.model->Logits(context_, part).value.Reshape({end - begin, vocabulary}).Contiguous();
}

}  // namespace octavo::eval
