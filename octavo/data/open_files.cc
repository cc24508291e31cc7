#include "octavo/data/open_files.h"

#include "octavo/base/error.h"
#include "octavo/data/file_list.h"
#include "octavo/data/packed_source.h"

namespace octavo::data {
namespace {

// A shell gives \n as two characters; a YAML file may have it either way.
std::string Unescaped(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    const bool escape = text[i] == '\\' && (next == 'n' || next == 't' || next == '\\');
    result += !escape ? text[i] : next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
    if (escape) ++i;
  }
  return result;
}

std::shared_ptr<const text::Tokenizer> OpenTokenizer(const Settings& settings) {
  const std::string path = settings.Text("tokenizer_path");
  if (path.empty()) return nullptr;
  if (path == "bytes") return text::MakeByteTokenizer();
  return text::LoadTokenizer(path);
}

std::shared_ptr<const Corpus> OpenCorpus(const Settings& settings, const NamedFiles& files,
                                         const DataOptions& options) {
  CorpusOptions corpus;
  corpus.kind = files.kind;
  corpus.columns = files.columns;
  corpus.separator = Unescaped(settings.Text("document_separator"));
  corpus.token_format = settings.Text("token_format");
  corpus.token_document_id = settings.Int("token_document_id");
  corpus.length = options.length;
  corpus.vocab_size = options.vocab_size;
  corpus.add_bos = settings.Bool("add_bos");
  corpus.add_eos = settings.Bool("add_eos");
  corpus.any_bytes = settings.Text("tokenizer_path") == "bytes";
  corpus.tokenizer = OpenTokenizer(settings);
  if (corpus.columns.empty()) ThrowUsage("train_data_columns and eval_data_columns must name a field");
  return std::make_shared<Corpus>(ExpandFiles(files.names, files.prefix, files.key), corpus);
}

PackOptions PackingOf(const Settings& settings, const DataOptions& options) {
  PackOptions pack;
  pack.rows = options.rows;
  pack.length = options.length;
  pack.packing = settings.Bool("packing");
  pack.truncate = settings.Bool("use_truncation");
  pack.most_segments = settings.Int("max_segments_per_seq");
  return pack;
}

}  // namespace

std::unique_ptr<BatchSource> OpenTrainFiles(const Settings& settings, const DataOptions& options, int64_t passes) {
  const double fraction = settings.Number("eval_fraction");
  if (fraction > 0 && !EvalFiles(settings).names.empty()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("eval_fraction={} and {} are both given", fraction, EvalFiles(settings).key),
                "held-out data comes from its own files or from a share of the training files; drop one");
  }
  const std::shared_ptr<const Corpus> corpus = OpenCorpus(settings, TrainFiles(settings), options);
  const UnitOrder order(corpus->units(), fraction, UnitOrder::Part::kTrain, settings.Bool("enable_data_shuffling"),
                        static_cast<uint64_t>(settings.Int("data_shuffle_seed")));
  PackOptions pack = PackingOf(settings, options);
  pack.passes = passes;
  if (passes < 0 && !settings.Bool("data_repeat")) pack.passes = settings.Int("num_epoch");
  return MakePackedSource(corpus, order, pack);
}

std::unique_ptr<BatchSource> OpenEvalFiles(const Settings& settings, const DataOptions& options) {
  NamedFiles files = EvalFiles(settings);
  const double fraction = files.names.empty() ? settings.Number("eval_fraction") : 0;
  if (files.names.empty() && fraction == 0) return nullptr;
  if (files.names.empty()) files = TrainFiles(settings);
  const std::shared_ptr<const Corpus> corpus = OpenCorpus(settings, files, options);
  const UnitOrder order(corpus->units(), fraction, fraction > 0 ? UnitOrder::Part::kHeldOut : UnitOrder::Part::kAll,
                        /*shuffle=*/false, 0);
  PackOptions pack = PackingOf(settings, options);
  pack.passes = 1;
  return MakePackedSource(corpus, order, pack);
}

}  // namespace octavo::data
