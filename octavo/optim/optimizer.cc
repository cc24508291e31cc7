#include "octavo/optim/optimizer.h"

#include <re2/re2.h>

#include <algorithm>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/kernels/optimizer.h"

namespace octavo::optim {
namespace {

Tensor& WeightOf(ops::Parameter& parameter) { return std::get<Tensor>(parameter.value); }

std::vector<bool> DecayMask(const OptimizerConfig& config, std::span<ops::Parameter* const> parameters) {
  std::vector<bool> decays(parameters.size(), true);
  for (const std::string& expression : config.no_decay) {
    const re2::RE2 pattern(expression, re2::RE2::Quiet);
    if (!pattern.ok()) ThrowUsage("adamw_mask '{}' is not a regular expression: {}", expression, pattern.error());
    bool used = false;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!re2::RE2::PartialMatch(parameters[i]->name, pattern)) continue;
      decays[i] = false;
      used = true;
    }
    if (!used) {
      throw Error(ErrorCode::kUsage, fmt::format("adamw_mask '{}' matches no parameter", expression),
                  fmt::format("names look like {}", parameters.empty() ? "" : parameters[0]->name));
    }
  }
  return decays;
}

}  // namespace

OptimizerKind OptimizerByName(std::string_view name) {
  if (name == "adamw") return OptimizerKind::kAdamW;
  if (name == "adam_pax") return OptimizerKind::kAdamPax;
  if (name == "sgd") return OptimizerKind::kSgd;
  throw Error(ErrorCode::kUsage, fmt::format("opt_type='{}' is not an optimizer of this version", name),
              "known: adamw adam_pax sgd");
}

Optimizer::Optimizer(const OptimizerConfig& config, std::span<ops::Parameter* const> parameters)
    : config_(config), parameters_(parameters.begin(), parameters.end()), decays_(DecayMask(config, parameters)) {
  for (const ops::Parameter* parameter : parameters_) {
    if (parameter->frozen() || parameter->tensor().dtype() != DType::kF32) {
      ThrowUsage("parameter {}: the optimizer updates f32 weights", parameter->name);
    }
    if (config.kind == OptimizerKind::kSgd) continue;
    moment1_.push_back(Tensor::Zeros(parameter->shape(), DType::kF32));
    moment2_.push_back(Tensor::Zeros(parameter->shape(), DType::kF32));
  }
}

void Optimizer::Step(ThreadPool& pool, kernels::Isa isa, const Gradients& gradients, double rate, double grad_scale,
                     FunctionRef<double*(size_t)> squares) {
  OCTAVO_CHECK(gradients.size() == parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& weight = WeightOf(*parameters_[i]);
    const Tensor gradient =
        gradients[i].defined() ? gradients[i].Contiguous() : Tensor::Zeros(weight.shape(), DType::kF32);
    OCTAVO_CHECK(gradient.shape() == weight.shape());
    if (config_.kind == OptimizerKind::kSgd) {
      kernels::SgdUpdate(pool, isa,
                         {.rate = rate,
                          .grad_scale = grad_scale,
                          .count = weight.size(),
                          .grad = gradient.Data<float>(),
                          .weight = weight.MutableData<float>(),
                          .squares = squares(i)});
      continue;
    }
    kernels::AdamUpdate(
        pool, isa,
        {.kind = config_.kind == OptimizerKind::kAdamW ? kernels::AdamKind::kAdamW : kernels::AdamKind::kAdamPax,
         .beta1 = config_.beta1,
         .beta2 = config_.beta2,
         .epsilon = config_.epsilon,
         .epsilon_root = config_.epsilon_root,
         .weight_decay = decays_[i] ? config_.weight_decay : 0,
         .rate = rate,
         .grad_scale = grad_scale,
         .step = count_,
         .count = weight.size(),
         .grad = gradient.Data<float>(),
         .weight = weight.MutableData<float>(),
         .moment1 = moment1_[i].MutableData<float>(),
         .moment2 = moment2_[i].MutableData<float>(),
         .squares = squares(i)});
  }
  ++count_;
}

std::vector<NamedTensor> Optimizer::State() const {
  std::vector<NamedTensor> state;
  state.emplace_back("opt/count", Tensor::FromValues<int64_t>({}, DType::kI64, std::vector<int64_t>{count_}));
  for (size_t i = 0; i < moment1_.size(); ++i) {
    state.emplace_back("opt/mu/" + parameters_[i]->name, moment1_[i]);
    state.emplace_back("opt/nu/" + parameters_[i]->name, moment2_[i]);
  }
  return state;
}

void Optimizer::Restore(const std::map<std::string, Tensor>& state) {
  std::vector<NamedTensor> own = State();
  std::string problems;
  for (const NamedTensor& item : own) {
    const auto found = state.find(item.first);
    if (found == state.end()) {
      problems += fmt::format("\n  {} is missing", item.first);
    } else if (found->second.shape() != item.second.shape() || found->second.dtype() != item.second.dtype()) {
      problems +=
          fmt::format("\n  {}: expected {}, found {}", item.first, item.second.ToString(), found->second.ToString());
    }
  }
  for (const auto& item : state) {
    const auto same = [&](const NamedTensor& known) { return known.first == item.first; };
    if (std::none_of(own.begin(), own.end(), same)) problems += fmt::format("\n  {} is superfluous", item.first);
  }
  if (!problems.empty()) {
    throw Error(ErrorCode::kFile, "the optimizer state does not fit opt_type and model:" + problems,
                "resume with the optimizer and the model that wrote it");
  }
  count_ = state.at("opt/count").Values<int64_t>()[0];
  for (size_t i = 0; i < moment1_.size(); ++i) {
    moment1_[i] = state.at("opt/mu/" + parameters_[i]->name).Clone();
    moment2_[i] = state.at("opt/nu/" + parameters_[i]->name).Clone();
  }
}

}  // namespace octavo::optim
