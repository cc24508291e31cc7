#include "octavo/base/error.h"
#include "octavo/data/open_files.h"

namespace octavo::data {
namespace {

[[noreturn]] void ThrowNotRead(const std::string& what, const std::string& why) {
  throw Error(
      ErrorCode::kUsage, fmt::format("{} is not read: {}", what, why),
      "use dataset_type=hf hf_path=json hf_train_files=FILE.jsonl, or data_files=FILE (text, JSON lines, tokens)");
}

// hf_path is the name of a loader here; the hub is not reached.
std::string HfKind(const Settings& settings) {
  const std::string path = settings.Text("hf_path");
  if (path == "json" || path == "text") return path;
  if (path.empty()) {
    throw Error(ErrorCode::kUsage, "dataset_type=hf needs hf_path", "found ''; use hf_path=json or hf_path=text");
  }
  ThrowNotRead(fmt::format("hf_path='{}'", path), "Octavo downloads nothing and knows hf_path=json and hf_path=text");
}

void RefuseOtherSets(const Settings& settings) {
  const std::string type = settings.Text("dataset_type");
  if (type == "tfds" && settings.Text("dataset_path").empty()) {
    throw Error(ErrorCode::kUsage, "dataset_type=tfds needs dataset_path",
                "found ''; for a first run use dataset_type=synthetic, for your own text dataset_type=hf hf_path=json "
                "hf_train_files=FILE.jsonl");
  }
  if (type == "tfds" || type == "c4_mlperf" || type == "olmo_grain") {
    ThrowNotRead(fmt::format("dataset_type={}", type), "its files are in another system's format");
  }
}

void RequireNames(const NamedFiles& files, const std::string& type) {
  if (!files.names.empty()) return;
  throw Error(ErrorCode::kUsage, fmt::format("dataset_type={} needs {}", type, files.key),
              fmt::format("{}=FILE, a pattern such as 'data/*.jsonl.gz', or a list", files.key));
}

}  // namespace

NamedFiles TrainFiles(const Settings& settings) {
  const std::string type = settings.Text("dataset_type");
  const std::vector<std::string> own = settings.List("data_files");
  if (!own.empty() && type != "tfds" && type != "files") {
    throw Error(ErrorCode::kUsage, fmt::format("data_files and dataset_type={} are both given", type),
                "drop one of them; data_files alone means dataset_type=files");
  }
  if (!own.empty() || type == "files") {
    NamedFiles files{own, "", "data_files", "auto", settings.List("train_data_columns")};
    RequireNames(files, type);
    return files;
  }
  RefuseOtherSets(settings);
  if (type == "hf") {
    NamedFiles files{settings.List("hf_train_files"), settings.Text("hf_data_dir"), "hf_train_files", HfKind(settings),
                     settings.List("train_data_columns")};
    RequireNames(files, type);
    return files;
  }
  NamedFiles files{settings.List("grain_train_files"), "", "grain_train_files", "auto",
                   settings.List("train_data_columns")};
  RequireNames(files, type);
  return files;
}

NamedFiles EvalFiles(const Settings& settings) {
  const std::string type = settings.Text("dataset_type");
  const std::vector<std::string> columns = settings.List("eval_data_columns");
  const std::vector<std::string> own = settings.List("eval_data_files");
  if (!own.empty()) return {own, "", "eval_data_files", "auto", columns};
  if (type == "hf") {
    return {settings.List("hf_eval_files"), settings.Text("hf_data_dir"), "hf_eval_files", HfKind(settings), columns};
  }
  if (type == "grain") return {settings.List("grain_eval_files"), "", "grain_eval_files", "auto", columns};
  return {};
}

}  // namespace octavo::data
