// Reference data as it lies on disk: a group is an index `<group>.json` with its `<group>.safetensors`, a case is one
// entry of the index: a call of a reference library, its inputs and what came out. Read and checked here; what a case
// means is known to the kinds (golden.h) only.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/checkpoint/safetensors.h"
#include "octavo/numerics/format.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

class GoldenGroup;

class GoldenCase {
 public:
  const std::string& name() const { return name_; }
  const GoldenGroup& group() const { return *group_; }
  const nlohmann::json& json() const { return json_; }

  // The library function, as the index describes it. "as CASE with …" stands for the call of that case.
  std::string_view call() const;
  // A field of the entry or an argument; null when it is missing.
  const nlohmann::json& Field(std::string_view key) const;
  const nlohmann::json& Arg(std::string_view key) const;
  // The text of the error that the library raised, if this is a case of an error.
  std::optional<std::string> error() const;
  bool uses_rms() const { return Field("uses_rms") == true; }

  // Argument or result name -> name of the tensor.
  const std::map<std::string, std::string>& inputs() const { return inputs_; }
  const std::map<std::string, std::string>& outputs() const { return outputs_; }
  bool HasInput(const std::string& name) const { return inputs_.contains(name); }
  bool HasOutput(const std::string& name) const { return outputs_.contains(name); }
  const StoredTensor& StoredInput(const std::string& name) const;
  const StoredTensor& StoredOutput(const std::string& name) const;
  // Aligned copies.
  Tensor Input(const std::string& name) const;
  Tensor Output(const std::string& name) const;
  // What the codes of an output are, where the index notes "FORMAT bit codes held as …".
  std::optional<Format> OutputFormat(const std::string& name) const;

 private:
  friend class GoldenGroup;
  GoldenCase(const GoldenGroup& group, nlohmann::json json, std::string name);
  std::map<std::string, std::string> ReadNames(const char* key) const;
  const StoredTensor& Stored(const std::map<std::string, std::string>& names, const char* kind,
                             const std::string& name) const;

  const GoldenGroup* group_;
  nlohmann::json json_;
  std::string name_;
  std::map<std::string, std::string> inputs_, outputs_;
};

// A JSON file without a list of cases is one case, named like the file.
class GoldenGroup {
 public:
  // A malformed index, a missing safetensors file or a name of a tensor that is not in it is a file error.
  explicit GoldenGroup(const std::filesystem::path& index_path);
  GoldenGroup(const GoldenGroup&) = delete;
  GoldenGroup& operator=(const GoldenGroup&) = delete;

  const std::string& name() const { return name_; }
  const std::filesystem::path& path() const { return path_; }  // of the index
  const nlohmann::json& header() const { return header_; }     // the index without its cases
  const std::vector<GoldenCase>& cases() const { return cases_; }
  const GoldenCase* Find(std::string_view name) const;
  const SafetensorsFile* tensors() const { return tensors_ ? &*tensors_ : nullptr; }

 private:
  std::filesystem::path path_;
  std::string name_;
  nlohmann::json header_;
  std::optional<SafetensorsFile> tensors_;
  std::vector<GoldenCase> cases_;
};

// A stored tensor as a Tensor. Packed codes (F4, F6) stay packed bytes of shape [bytes].
Tensor CopyOf(const StoredTensor& stored);

// What stands between two marks, from the first place where both occur; nullopt otherwise.
std::optional<std::string> Between(std::string_view text, std::string_view before, std::string_view after);

}  // namespace octavo
