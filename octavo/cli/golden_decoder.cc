#include "octavo/cli/golden_decoder.h"

#include <algorithm>
#include <cmath>

#include "octavo/ops/tape.h"
#include "octavo/weights/restore.h"

namespace octavo {
namespace {

// What a second correct evaluation may differ by (the README of the reference data).
constexpr double kLogits = 1e-4, kLoss = 1e-5, kGradients = 1e-4;

Mismatch CompareAbsolute(const Tensor& expected, const Tensor& actual, double most) {
  if (expected.shape() != actual.shape()) {
    return fmt::format("expected {}, found {}", expected.ToString(), actual.ToString());
  }
  const std::vector<float> a = expected.ToVector<float>(), b = actual.ToVector<float>();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(static_cast<double>(a[i]) - b[i]);
    worst = error <= worst ? worst : error;  // a NaN is the worst
    if (!(error <= most)) {
      return fmt::format("element {}: expected {}, found {} (bound {})", i, a[i], b[i], most);
    }
  }
  return std::nullopt;
}

Tensor TokensOf(const StoredTensor& stored) {
  std::vector<int32_t> ids;
  for (const int64_t id : stored.CopyAs<int64_t>()) ids.push_back(static_cast<int32_t>(id));
  return Tensor::FromValues(Shape(stored.shape), DType::kI32, ids);
}

class Runner {
 public:
  Runner(const GoldenDecoderRun& run, ThreadPool& pool)
      : run_(run), context_(pool, kernels::ChooseIsa().isa, workspace_) {
    context_.interceptor = run.provider;
  }

  const StoredTensor* Find(const std::string& name) const { return run_.expected.Find(run_.prefix + name); }
  Tensor Expected(const std::string& name) const { return CopyOf(run_.expected.At(run_.prefix + name)); }

  Tensor Logits(const Tensor& tokens) {
    const ops::Rows rows = ops::RowsOfShape(tokens.dim(0), tokens.dim(1));
    const ops::Var hidden = models::Forward(context_, run_.model, tokens, rows);
    return run_.model.Logits(context_, hidden).value;
  }

  // The mean cross entropy of each token's successor; gradients by our names.
  float LossAndGradients(const Tensor& tokens, std::map<std::string, Tensor>* gradients) {
    const int64_t batch = tokens.dim(0), length = tokens.dim(1);
    const std::vector<int32_t> ids = tokens.ToVector<int32_t>();
    std::vector<int32_t> targets, segments;
    for (int64_t i = 0; i < tokens.size(); ++i) {
      const bool last = i % length == length - 1;
      targets.push_back(last ? 0 : ids[static_cast<size_t>(i) + 1]);
      segments.push_back(last ? 0 : 1);
    }
    models::LossOptions options;
    options.total_weights = static_cast<double>(batch * (length - 1));
    options.training = false;
    ops::Tape tape;
    context_.tape = &tape;
    const ops::Var loss = models::Loss(
        context_, run_.model, tokens, Tensor::FromValues(tokens.shape(), DType::kI32, targets),
        Tensor::FromValues(tokens.shape(), DType::kI32, segments), ops::RowsOfShape(batch, length), options, nullptr);
    tape.Run(context_, loss, Tensor::FromValues(Shape{}, DType::kF32, std::vector<float>{1}));
    context_.tape = nullptr;
    for (const ops::Parameter* parameter : run_.model.parameters()) {
      const Tensor gradient = tape.Grad(*parameter);
      if (gradient.defined()) (*gradients)[parameter->name] = gradient.Contiguous();
    }
    return loss.value.Data<float>()[0];
  }

  // One token after the other by whole passes over all so far.
  void Greedy(const Tensor& prompt, int64_t count, std::vector<int64_t>* ids, std::vector<float>* logits) {
    std::vector<int32_t> tokens = prompt.ToVector<int32_t>();
    for (int64_t step = 0; step < count; ++step) {
      const auto length = static_cast<int64_t>(tokens.size());
      const Tensor all = Logits(Tensor::FromValues(Shape{1, length}, DType::kI32, tokens));
      const std::vector<float> last = all.Select(0, 0).Select(0, length - 1).ToVector<float>();
      const auto best = std::max_element(last.begin(), last.end()) - last.begin();
      ids->push_back(best);
      logits->insert(logits->end(), last.begin(), last.end());
      tokens.push_back(static_cast<int32_t>(best));
    }
  }

 private:
  const GoldenDecoderRun& run_;
  kernels::Workspace workspace_;
  ops::Context context_;
};

// The gradient of one tensor of the file.
Tensor GradientOf(const std::string& theirs, const std::vector<weights::HfPiece>& pieces,
                  const std::map<std::string, Tensor>& gradients) {
  for (const weights::HfPiece& piece : pieces) {
    const auto found = std::find_if(piece.theirs.begin(), piece.theirs.end(), [&](const std::string& name) {
      return name == theirs || "transformer." + name == theirs;  // old files of gpt2 have no prefix
    });
    if (found == piece.theirs.end()) continue;
    const auto gradient = gradients.find(piece.ours);
    if (gradient == gradients.end()) ThrowFile("'{}' got no gradient", piece.ours);
    weights::HfPiece plain = piece;
    plain.less_one = false;  // a shift has no part in the gradient
    return ExportPiece(plain, gradient->second)[static_cast<size_t>(found - piece.theirs.begin())];
  }
  ThrowFile("no parameter is made of '{}'", theirs);
}

Mismatch CompareNorm(const Tensor& expected, const std::map<std::string, Tensor>& gradients) {
  double squares = 0;
  for (const auto& [name, gradient] : gradients) {
    for (const float value : gradient.Values<float>()) squares += static_cast<double>(value) * value;
  }
  const double wanted = expected.ToVector<float>()[0], norm = std::sqrt(squares);
  if (std::abs(norm - wanted) <= kGradients * wanted) return std::nullopt;
  return fmt::format("expected {}, found {}", wanted, norm);
}

void RunGradients(Runner& runner, const GoldenDecoderRun& run, const Tensor& tokens, const std::string& case_prefix,
                  GoldenFolderCases& cases) {
  std::map<std::string, Tensor> gradients;
  cases.Run(case_prefix + "loss", [&] {
    const float loss = runner.LossAndGradients(tokens, &gradients);
    return CompareAbsolute(runner.Expected("loss"), Tensor::FromValues(Shape{1}, DType::kF32, std::vector<float>{loss}),
                           kLoss);
  });
  if (gradients.empty()) return;
  const std::string begin = run.prefix + "grad.";
  for (const StoredTensor& stored : run.expected.tensors()) {
    if (!stored.name.starts_with(begin)) continue;
    cases.Run(case_prefix + stored.name, [&] {
      return CompareToLargest(CopyOf(stored), GradientOf(stored.name.substr(begin.size()), run.pieces, gradients),
                              kGradients);
    });
  }
  if (runner.Find("grad_norm_all") != nullptr) {
    cases.Run(case_prefix + "grad_norm_all", [&] { return CompareNorm(runner.Expected("grad_norm_all"), gradients); });
  }
}

}  // namespace

std::unique_ptr<models::Model> LoadGoldenModel(const models::ModelConfig& config, const weights::Source& source) {
  std::unique_ptr<models::Model> model = models::MakeModel(config);
  weights::RestoreParameters(source, model->parameters(), {.convert_floats = true});
  return model;
}

void RunGoldenDecoder(const GoldenDecoderRun& run, const std::string& case_prefix, ThreadPool& pool,
                      GoldenFolderCases& cases) {
  Runner runner(run, pool);
  const Tensor tokens = TokensOf(run.expected.At("input_ids"));
  cases.Run(case_prefix + "logits",
            [&] { return CompareAbsolute(runner.Expected("logits"), runner.Logits(tokens), kLogits); });
  if (!run.all) return;
  RunGradients(runner, run, tokens, case_prefix, cases);
  const StoredTensor& chosen = run.expected.At(run.prefix + "greedy_ids");
  std::vector<int64_t> ids;
  std::vector<float> logits;
  cases.Run(case_prefix + "greedy_ids", [&] {
    runner.Greedy(TokensOf(run.expected.At(run.prefix + "prompt_ids")), chosen.count, &ids, &logits);
    return CompareBits(CopyOf(chosen), Tensor::FromValues(Shape(chosen.shape), DType::kI64, ids));
  });
  cases.Run(case_prefix + "greedy_logits", [&] {
    const Tensor expected = runner.Expected("greedy_logits");
    if (static_cast<int64_t>(logits.size()) != expected.size()) ThrowFile("nothing was generated");
    return CompareAbsolute(expected, Tensor::FromValues(expected.shape(), DType::kF32, logits), kLogits);
  });
}

}  // namespace octavo
