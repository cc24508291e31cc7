// A model from disk, ready for evaluation: what eval and compare load, with the tokenizer that belongs to it, and the
// text they run over. Used by these verbs only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "octavo/cli/args.h"
#include "octavo/eval/subject.h"
#include "octavo/eval/windows.h"
#include "octavo/quant/provider.h"
#include "octavo/text/tokenizer.h"
#include "octavo/weights/load_model.h"

namespace octavo {

struct EvaluatedModel {
  weights::StoredModel stored;
  weights::LoadedModel loaded;
  std::unique_ptr<quant::Provider> provider;   // null: floats
  std::unique_ptr<text::Tokenizer> tokenizer;  // null: it brings none
  eval::Subject subject;
};

// `floats`: without its recipe, codes dequantized. Notes go to standard error.
EvaluatedModel LoadEvaluated(const std::string& path, bool floats, const Args& args, ThreadPool& pool);

struct EvaluatedText {
  std::vector<int32_t> tokens;
  eval::WindowOptions windows;
};

// data=FILE, or the built-in text when `sample` is set, cut for the model: max_target_length=N, else the model's length
// up to 2048. Windows begin with the token that the tokenizer puts before a text.
EvaluatedText ReadEvaluatedText(const EvaluatedModel& model, const text::Tokenizer& tokenizer, bool sample,
                                const Args& args);

// The tokenizer: tokenizer_path=…, else the model's own. A file error when there is none.
const text::Tokenizer& TokenizerOf(const EvaluatedModel& model);

// An option that is a finite number from 0; nullopt when it is not given.
std::optional<double> NumberOption(const Args& args, std::string_view name);

// Options of both verbs.
std::vector<OptionSpec> EvaluationOptions(std::vector<OptionSpec> more);

}  // namespace octavo
