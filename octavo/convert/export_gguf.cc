// The way out to GGUF files: weights/gguf_export.h, and the keys of the tokenizer and the chat template.
#include "octavo/base/error.h"
#include "octavo/convert/export.h"
#include "octavo/eval/sample_text.h"
#include "octavo/text/gguf_vocab_make.h"
#include "octavo/weights/gguf_export.h"

namespace octavo::convert {
namespace {

void WriteVocabulary(const text::GgufVocabulary& vocabulary, GgufWriter& writer) {
  writer.Text("tokenizer.ggml.model", vocabulary.model);
  if (!vocabulary.pre.empty()) writer.Text("tokenizer.ggml.pre", vocabulary.pre);
  writer.Texts("tokenizer.ggml.tokens", vocabulary.tokens);
  if (!vocabulary.scores.empty()) writer.F32s("tokenizer.ggml.scores", vocabulary.scores);
  if (!vocabulary.types.empty()) writer.I32s("tokenizer.ggml.token_type", vocabulary.types);
  if (!vocabulary.merges.empty()) writer.Texts("tokenizer.ggml.merges", vocabulary.merges);
  const auto id = [&](const char* key, const std::optional<int64_t>& value) {
    if (value && *value >= 0 && *value < UINT32_MAX) writer.U32(key, static_cast<uint32_t>(*value));
  };
  id("tokenizer.ggml.bos_token_id", vocabulary.bos_id);
  id("tokenizer.ggml.eos_token_id", vocabulary.eos_id);
  id("tokenizer.ggml.unknown_token_id", vocabulary.unknown_id);
  id("tokenizer.ggml.padding_token_id", vocabulary.pad_id);
  const auto flag = [&](const char* key, const std::optional<bool>& value) {
    if (value) writer.Bool(key, *value);
  };
  flag("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  flag("tokenizer.ggml.add_eos_token", vocabulary.add_eos);
  flag("tokenizer.ggml.add_space_prefix", vocabulary.add_space_prefix);
  flag("tokenizer.ggml.remove_extra_whitespaces", vocabulary.remove_extra_spaces);
  if (!vocabulary.charsmap.empty()) {
    const std::string& map = vocabulary.charsmap;
    writer.U8s("tokenizer.ggml.precompiled_charsmap", {reinterpret_cast<const uint8_t*>(map.data()), map.size()});
  }
  if (!vocabulary.chat_template.empty()) writer.Text("tokenizer.chat_template", vocabulary.chat_template);
}

}  // namespace

ExportResult ExportGguf(const ExportRequest& request, FilePublisher& file) {
  ExportResult result;
  text::MadeGgufVocabulary vocabulary;
  vocabulary.note = "it brings none; give tokenizer_path=…";
  if (!request.source.tokenizer.empty()) {
    vocabulary = text::MakeGgufVocabulary(request.source.tokenizer.string(), request.source.config.vocab_size,
                                          eval::SampleText());
  }
  if (vocabulary.vocabulary) {
    result.files.emplace_back("tokenizer");
    if (!vocabulary.vocabulary->chat_template.empty()) result.files.emplace_back("chat_template");
  } else {
    result.notes.push_back("no tokenizer in the file: " + vocabulary.note);
  }
  weights::GgufExportOptions options;
  options.dtype = ExportType(request);
  options.name = request.source.name;
  options.progress = request.progress;
  options.more_keys = [&](GgufWriter& writer) {
    if (vocabulary.vocabulary) {
      WriteVocabulary(*vocabulary.vocabulary, writer);
    } else {
      writer.Text("tokenizer.ggml.model", "none");  // llama.cpp loads no file that lacks the key
    }
  };
  GgufWriter writer([&](std::span<const std::byte> bytes) { file.Write(bytes); });
  const weights::GgufExported exported = weights::ExportGguf(request.source.config, request.read, options, writer);
  result.tensors = exported.tensors;
  result.quantized = exported.quantized;
  result.notes.insert(result.notes.end(), exported.notes.begin(), exported.notes.end());
  result.bytes = file.size();
  return result;
}

}  // namespace octavo::convert
