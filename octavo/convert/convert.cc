#include "octavo/convert/convert.h"

#include <limits>
#include <map>

#include "octavo/base/error.h"
#include "octavo/base/process_memory.h"
#include "octavo/base/progress.h"
#include "octavo/convert/divergence.h"
#include "octavo/convert/export.h"
#include "octavo/convert/replaceable.h"
#include "octavo/convert/write_octavo.h"
#include "octavo/weights/carried.h"

namespace octavo::convert {
namespace {

namespace fs = std::filesystem;

std::string SizeText(double bytes) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  return bytes < kGiB / 10 ? fmt::format("{:.1f} MiB", bytes / kMiB) : fmt::format("{:.2f} GiB", bytes / kGiB);
}

weights::LoadOptions LoadOptionsOf(const ConvertRequest& request) {
  weights::LoadOptions options;
  options.recipe = request.recipe;
  options.dequantize = request.dequantize;
  return options;
}

void CheckRequest(const ConvertRequest& request) {
  const bool floats = request.parameters_only || request.dequantize;
  const TreeLayout& tree = request.tree;
  const bool spelled = tree.scanned || !tree.collection.empty();
  if (spelled && request.format != TargetFormat::kOctavo) {
    ThrowUsage("scan_layers and tree spell the names of format=octavo; other formats have their own");
  }
  if (spelled && !floats && (request.recipe != nullptr || !request.source.recipe.empty())) {
    throw Error(ErrorCode::kUsage, "quantized checkpoints are unrolled and without collections",
                "for MaxText's spelling add parameters_only=true, or dequantize=true");
  }
  if (tree.collection != "" && tree.collection != "params/" && tree.collection != "params/params/") {
    ThrowUsage("tree='{}': expected params or params/params", tree.collection);
  }
  if (request.parameters_only && request.source.quantized()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} has no floats to keep: it is quantized", request.source.path.string()),
                "dequantize=true makes floats of its codes");
  }
  if (request.max_kl && request.format == TargetFormat::kGguf) {
    throw Error(ErrorCode::kUsage, "max_kl is measured for format=octavo and format=hf",
                "convert, then octavo compare SRC DST");
  }
  if (request.dry_run) return;
  if (request.replace) CheckReplaceable(request.target, request.source.path, request.format);
  std::error_code error;
  if (!request.replace && fs::exists(fs::symlink_status(request.target, error))) {
    throw Error(ErrorCode::kUsage, fmt::format("{} exists", request.target.string()),
                "add --force to replace it; it is kept until the new one is complete");
  }
}

void PrintRead(const ConvertRequest& request) {
  const weights::StoredModel& source = request.source;
  request.log.Info("read      {}   {}   {} tensors   {}   {} shard{}, no holes", source.name, NameOf(source.kind),
                   source.stored_tensors, SizeText(static_cast<double>(source.stored_bytes)), source.shards,
                   source.shards == 1 ? "" : "s");
  for (const std::string& note : source.notes) request.log.Info("note      {}", note);
}

// "196 quantized, 115 kept bf16"
std::string CountText(const ConvertRequest& request, weights::ParameterReader& reader) {
  int64_t quantized = 0;
  std::map<DType, int64_t> kept;
  for (const ops::Parameter* parameter : reader.model().parameters()) {
    const DType stored = request.source.floats.tensors.at(parameter->name).dtype;
    const bool codes = !request.parameters_only && reader.HoldsCodes(parameter->name);
    if (codes) {
      ++quantized;
    } else {
      ++kept[request.dtype.value_or(stored)];
    }
  }
  std::string text = quantized > 0 ? fmt::format("{} quantized", quantized) : "";
  for (const auto& [dtype, count] : kept) {
    text += fmt::format("{}{} kept {}", text.empty() ? "" : ", ", count, NameOf(dtype));
  }
  return text;
}

std::string RecipeText(const weights::ParameterReader& reader) {
  return reader.recipe() == nullptr ? "floats" : reader.recipe()->name;
}

void PrintWritten(const ConvertRequest& request, const ConvertSummary& summary, const std::string& recipe,
                  const std::string& counts) {
  request.log.Info("write     {}   {}   {}   peak memory {}   {:.1f} s", recipe, counts,
                   SizeText(static_cast<double>(summary.bytes)), SizeText(static_cast<double>(summary.peak_bytes)),
                   summary.write_seconds);
  if (!summary.carried.empty()) request.log.Info("carried   {}", fmt::join(summary.carried, ", "));
}

[[noreturn]] void FailBudget(const Divergence& divergence, double budget) {
  std::vector<std::string> parts;
  for (const auto& [path, kl] : divergence.parts) {
    const std::string_view shown =
        std::string_view(path).starts_with("decoder/") ? std::string_view(path).substr(8) : path;
    parts.push_back(fmt::format("{} {:.4f}", shown, kl));
  }
  throw Error(
      ErrorCode::kCheck, fmt::format("KL {:.4f} is over max_kl={}; nothing was published", divergence.kl, budget),
      parts.empty() ? "raise max_kl, or choose another recipe"
                    : fmt::format("largest parts: {}; keep them in bf16 or raise max_kl", fmt::join(parts, ", ")));
}

// The files under their temporary name are read again; the text after them.
void Check(const ConvertRequest& request, const fs::path& written, const std::string& reread, ConvertSummary& summary) {
  std::string text = reread;
  if (request.tokens) {
    const weights::StoredModel target = weights::OpenStored(written);
    const double budget = request.max_kl.value_or(std::numeric_limits<double>::infinity());
    const Divergence divergence =
        MeasureDivergence(request.source, target, request.tokens(), budget, request.pool, request.isa);
    summary.kl = divergence.kl;
    summary.kl_error = divergence.error;
    if (divergence.kl > budget) FailBudget(divergence, budget);
    text += fmt::format("{}KL to source {:.5f} ± {:.5f}", text.empty() ? "" : "   ", divergence.kl, divergence.error);
    if (request.max_kl) text += fmt::format(" (budget {})", *request.max_kl);
    if (divergence.equal) text += ", every logit equal";
  }
  if (!text.empty()) request.log.Info("check     {}", text);
}

ConvertSummary ToOctavo(const ConvertRequest& request, weights::ParameterReader& reader) {
  const double start = Progress::SteadySeconds();
  ConvertSummary summary;
  std::vector<PlannedParameter> planned = PlanTarget(request, reader);
  for (const PlannedParameter& parameter : planned) summary.planned_bytes += parameter.bytes;
  WriteCheckpointOptions options;
  options.file_bytes = request.file_bytes;
  options.replace = request.replace ? Replace::kYes : Replace::kNo;
  options.fault = request.fault;
  CheckpointWriter writer(request.target, std::move(planned), options);
  WriteOctavo(request, reader, writer, summary);
  writer.Close();
  summary.bytes = writer.bytes();
  summary.bits = writer.manifest().Bits();
  summary.peak_bytes = PeakResidentBytes();
  summary.write_seconds = Progress::SteadySeconds() - start;
  PrintWritten(request, summary, RecipeText(reader), CountText(request, reader));
  if (!weights::CarriesTokenizer(request.source)) {
    request.log.Info("note      {}", NoTokenizerNote(request.source));
  }
  const Checkpoint written(writer.temporary());
  written.Verify();
  const auto tensors = static_cast<int64_t>(written.manifest().tensors.size());
  Check(request, writer.temporary(), fmt::format("re-read: {} of {} equal", tensors, tensors), summary);
  writer.Publish();
  return summary;
}

ConvertSummary ToOthers(const ConvertRequest& request, weights::ParameterReader& reader) {
  const double start = Progress::SteadySeconds();
  ConvertSummary summary;
  Progress progress(request.log, "convert", static_cast<int64_t>(reader.model().parameters().size()), "parameters");
  ExportRequest out{request.source, nullptr, request.dtype,
                    [&progress](int64_t done, int64_t) { progress.Update(done); }};
  out.read = [&](const std::string& name) -> weights::ParameterValue {
    if (!request.parameters_only && reader.HoldsCodes(name)) return reader.ReadCodes(name);
    return reader.ReadStored(name);
  };
  const Replace replace = request.replace ? Replace::kYes : Replace::kNo;
  const auto finish = [&](const ExportResult& result) {
    summary.bytes = result.bytes;
    summary.parameters = result.tensors;
    summary.quantized = result.quantized;
    summary.carried = result.files;
    summary.peak_bytes = PeakResidentBytes();
    summary.write_seconds = Progress::SteadySeconds() - start;
    PrintWritten(request, summary, RecipeText(reader),
                 fmt::format("{} tensors, {} quantized", result.tensors, result.quantized));
    for (const std::string& note : result.notes) request.log.Info("note      {}", note);
  };
  if (request.format == TargetFormat::kHf) {
    FolderPublisher folder(request.target, replace, request.fault);
    finish(ExportHf(out, folder));
    Check(request, folder.temporary(), "", summary);
    folder.Publish();
  } else {
    FilePublisher file(request.target, replace, request.fault);
    finish(ExportGguf(out, file));
    file.Publish();
  }
  return summary;
}

}  // namespace

ConvertSummary Convert(const ConvertRequest& request) {
  CheckRequest(request);
  PrintRead(request);
  weights::ParameterReader reader(request.source, LoadOptionsOf(request), request.pool, request.isa);
  if (request.dry_run) {
    ConvertSummary summary;
    for (const PlannedParameter& parameter : PlanTarget(request, reader)) summary.planned_bytes += parameter.bytes;
    request.log.Info("{}", quant::CoverageLine(reader.plan()));
    request.log.Info("dry run   {}   {}   {} planned; nothing was written", RecipeText(reader),
                     CountText(request, reader), SizeText(static_cast<double>(summary.planned_bytes)));
    return summary;
  }
  return request.format == TargetFormat::kOctavo ? ToOctavo(request, reader) : ToOthers(request, reader);
}

}  // namespace octavo::convert
