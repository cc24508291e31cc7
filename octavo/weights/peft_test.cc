#include "octavo/weights/peft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/models/test_models.h"
#include "octavo/weights/hf_export.h"
#include "octavo/weights/hf_names.h"

namespace octavo::weights {
namespace {

using ::testing::HasSubstr;

constexpr const char* kQuery = "model.layers.1.self_attn.q_proj";
constexpr const char* kDown = "model.layers.0.mlp.down_proj";

models::ModelConfig Config() {
  models::ModelConfig config = models::TinyLlama();
  config.rope_type = "llama3.1";  // rotary features are regrouped
  config.normalize_embedding_logits = false;
  return config;
}

void WriteAdapter(const std::filesystem::path& folder, const std::string& json,
                  const std::map<std::string, Tensor>& tensors) {
  std::ofstream(folder / "adapter_config.json") << json;
  nlohmann::json header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.RawData()), static_cast<size_t>(tensor.bytes()));
    header[name] = {{"dtype", "F32"},
                    {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
                    {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::ofstream file(folder / "adapter_model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), 8);
  file << text << data;
}

std::map<std::string, Tensor> GoodTensors() {
  const std::string prefix = "base_model.model.";
  return {{prefix + kQuery + ".lora_A.weight", ops::RandomTensor({4, 24}, 1)},
          {prefix + kQuery + ".lora_B.weight", ops::RandomTensor({24, 4}, 2)},
          {prefix + kDown + ".lora_A.weight", ops::RandomTensor({2, 40}, 3)},
          {prefix + kDown + ".lora_B.weight", ops::RandomTensor({24, 2}, 4)}};
}

const char* const kGood = R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"],
  "rank_pattern": {"down_proj": 2}, "alpha_pattern": {"layers.0.mlp.down_proj": 3}})";

// The delta of a module computed on their side, then laid out as a weight of the model is, equals A B on ours.
void ExpectDelta(const models::Model& model, const quant::LoraFactors& factors, const std::string& module,
                 const Tensor& a, const Tensor& b) {
  const int64_t rank = a.dim(0), in = a.dim(1), out = b.dim(0);
  std::vector<float> theirs(static_cast<size_t>(out * in));
  for (int64_t i = 0; i < out; ++i) {
    for (int64_t j = 0; j < in; ++j) {
      for (int64_t k = 0; k < rank; ++k) {
        theirs[static_cast<size_t>(i * in + j)] += b.Data<float>()[i * rank + k] * a.Data<float>()[k * in + j];
      }
    }
  }
  const Tensor weight = Tensor::FromValues({out, in}, DType::kF32, theirs);
  for (const HfPiece& piece : HfPieces(HfModelTypeOf(model.config()), model.config())) {
    if (piece.theirs[0] != module + ".weight") continue;
    const std::vector<float> expected = ImportPiece(piece, {&weight, 1}).ToVector<float>();
    const Tensor &our_a = factors.a.tensor(), &our_b = factors.b.tensor();
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t j = 0; j < out; ++j) {
        float sum = 0;
        for (int64_t k = 0; k < rank; ++k) sum += our_a.Data<float>()[i * rank + k] * our_b.Data<float>()[k * out + j];
        ASSERT_NEAR(sum, expected[static_cast<size_t>(i * out + j)], 1e-5) << module;
      }
    }
    return;
  }
  FAIL() << module;
}

TEST(Peft, FactorsLieAsTheWeightsDo) {
  const auto model = models::MakeModel(Config());
  const TempFolder folder;
  const auto tensors = GoodTensors();
  WriteAdapter(folder.path(), kGood, tensors);
  const quant::LoraAdapter adapter = ReadPeftAdapter(folder.path(), "poet", *model);
  ASSERT_EQ(adapter.factors.size(), 2u);
  const auto& query = adapter.factors.at("decoder/layers_1/self_attention/query/kernel");
  const auto& down = adapter.factors.at("decoder/layers_0/mlp/wo/kernel");
  EXPECT_EQ(query.scale, 2);
  EXPECT_EQ(down.scale, 1.5f);
  const std::string prefix = "base_model.model.";
  ExpectDelta(*model, query, kQuery, tensors.at(prefix + kQuery + ".lora_A.weight"),
              tensors.at(prefix + kQuery + ".lora_B.weight"));
  ExpectDelta(*model, down, kDown, tensors.at(prefix + kDown + ".lora_A.weight"),
              tensors.at(prefix + kDown + ".lora_B.weight"));
}

TEST(Peft, ConfigsAndWhatTheyRefuse) {
  const PeftConfig slora = ParsePeftConfig(R"({"peft_type":"LORA","r":16,"lora_alpha":8,"use_rslora":true,
    "target_modules":".*\\.(q|v)_proj"})",
                                           "c");
  EXPECT_EQ(slora.ScaleOf("x"), 2);
  EXPECT_TRUE(slora.Targets(kQuery));
  EXPECT_FALSE(slora.Targets(kDown));
  EXPECT_TRUE(ParsePeftConfig(R"({"peft_type":"LORA","target_modules":"all-linear"})", "c").Targets(kDown));
  const auto refused = [](const char* json, const char* text) {
    try {
      ParsePeftConfig(json, "adapter_config.json");
      ADD_FAILURE() << json;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  refused(R"({"peft_type":"IA3"})", "peft_type is 'IA3'");
  refused(R"({})", "peft_type is ''");
  refused(R"([])", "expected an object");
  refused(R"({"peft_type":"LORA","use_dora":true})", "use_dora=true is not supported");
  refused(R"({"peft_type":"LORA","bias":"all"})", "bias='all' is not supported");
  refused(R"({"peft_type":"LORA","modules_to_save":["lm_head"]})", "modules_to_save=[\"lm_head\"]");
  refused(R"({"peft_type":"LORA","r":0})", "r=0");
  refused(R"({"peft_type":"LORA","r":"x"})", "r has another type");
  refused(R"({"peft_type":"LORA","target_modules":"("})", "is no regular expression");
  refused(R"({"peft_type":"LORA","rank_pattern":{"q":-1}})", "is no positive number");
  refused(R"({"peft_type":"LORA","rank_pattern":[]})", "is no object");
  refused(R"({"peft_type":"LORA")", "");
}

TEST(Peft, AdaptersOfOtherModelsNameModuleAndShapes) {
  const auto model = models::MakeModel(Config());
  const auto refused = [&](const char* text, auto change) {
    auto tensors = GoodTensors();
    change(tensors);
    const TempFolder folder;
    WriteAdapter(folder.path(), kGood, tensors);
    try {
      ReadPeftAdapter(folder.path(), "poet", *model);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  const std::string query = std::string("base_model.model.") + kQuery;
  refused("q_proj: lora_A [4, 25] and lora_B [24, 4], expected [4, 24] and [24, 4]", [&](auto& t) {
    t[query + ".lora_A.weight"] = ops::RandomTensor({4, 25}, 1);
  });
  refused("expected [4, 24]", [&](auto& t) { t[query + ".lora_A.weight"] = ops::RandomTensor({3, 24}, 1); });
  refused("has lora_A only", [&](auto& t) { t.erase(query + ".lora_B.weight"); });
  refused("the model has no module model.layers.7.self_attn.q_proj", [&](auto& t) {
    t["base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight"] = ops::RandomTensor({4, 24}, 1);
  });
  refused("which target_modules does not name", [&](auto& t) {
    t["base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight"] = ops::RandomTensor({4, 24}, 1);
  });
  refused("adapts the embedding", [&](auto& t) {
    t["base_model.model.model.embed_tokens.lora_embedding_A"] = ops::RandomTensor({4, 61}, 1);
  });
  refused("is no LoRA factor", [&](auto& t) { t["base_model.model.lm_head.weight"] = ops::RandomTensor({61, 24}, 1); });
  refused("DoRA", [&](auto& t) { t[query + ".lora_magnitude_vector.weight"] = ops::RandomTensor({24}, 1); });
  const TempFolder empty;
  EXPECT_THROW(ReadPeftAdapter(empty.path(), "x", *model), Error);
}

}  // namespace
}  // namespace octavo::weights
