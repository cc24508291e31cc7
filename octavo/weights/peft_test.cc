#include "octavo/weights/peft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/models/test_models.h"
#include "octavo/quant/lora.h"
#include "octavo/weights/test_adapters.h"

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

std::map<std::string, Tensor> GoodTensors() {
  const std::string prefix = "base_model.model.";
  return {{prefix + kQuery + ".lora_A.weight", ops::RandomTensor({4, 24}, 1)},
          {prefix + kQuery + ".lora_B.weight", ops::RandomTensor({24, 4}, 2)},
          {prefix + kDown + ".lora_A.weight", ops::RandomTensor({2, 40}, 3)},
          {prefix + kDown + ".lora_B.weight", ops::RandomTensor({24, 2}, 4)}};
}

const char* const kGood = R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules":
  ["layers.1.self_attn.q_proj", "layers.0.mlp.down_proj"], "rank_pattern": {"down_proj": 2}, "alpha_pattern": {"layers.0.mlp.down_proj": 3}})";

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
  // Scores have no scale of their own here: our queries are theirs over sqrt(head_dim), and so are changes of them.
  EXPECT_EQ(query.scale, static_cast<float>(2 / std::sqrt(6.0)));
  EXPECT_EQ(down.scale, 1.5f);
  const std::string prefix = "base_model.model.";
  ExpectDelta(*model, query, kQuery, tensors.at(prefix + kQuery + ".lora_A.weight"),
              tensors.at(prefix + kQuery + ".lora_B.weight"));
  ExpectDelta(*model, down, kDown, tensors.at(prefix + kDown + ".lora_A.weight"),
              tensors.at(prefix + kDown + ".lora_B.weight"));
}

// One model twice: as it is trained here, its scores without a scale, and as transformers would have it. The adapter of
// the second changes the first by the same.
TEST(Peft, QueriesOfModelsThatScaleThemselves) {
  models::ModelConfig config = Config();
  ops::TestBench bench;
  const auto ours = models::MakeModel(config);
  models::Initialize(*ours, RngKey::FromSeed(5), bench.pool);
  const double factor = HfQueryFactor(config);
  EXPECT_EQ(factor, std::sqrt(6.0));
  config.query_pre_attn_scalar = 1 / std::sqrt(6.0);
  EXPECT_EQ(HfQueryFactor(config), 1);
  const auto theirs = models::MakeModel(config);
  for (ops::Parameter* parameter : theirs->parameters()) {
    const Tensor& value = ours->parameter_set().Find(parameter->name)->tensor();
    std::vector<float> floats = value.ToVector<float>();
    if (parameter->name.find("/query/") != std::string::npos) {
      for (float& one : floats) one = static_cast<float>(one * factor);
    }
    parameter->value = Tensor::FromValues(value.shape(), DType::kF32, floats);
  }
  const TempFolder folder;
  WriteRandomAdapter(folder.path(), config, 1);
  const auto logits = [&](models::Model& model, bool adapted) {
    quant::LoraProvider lora;
    const auto adapter = std::make_shared<const quant::LoraAdapter>(ReadPeftAdapter(folder.path(), "x", model));
    const int number = lora.Add(adapter);
    lora.UseForAll(adapted ? number : 0);
    bench.context.interceptor = &lora;
    const Tensor tokens = ops::IntTensor(Shape{1, 7}, {3, 1, 4, 1, 5, 9, 2});
    const ops::Var hidden = models::Forward(bench.context, model, tokens, ops::RowsOfShape(1, 7));
    const std::vector<float> result = model.Logits(bench.context, hidden).value.Contiguous().ToVector<float>();
    bench.context.interceptor = nullptr;
    return result;
  };
  const auto distance = [](const std::vector<float>& a, const std::vector<float>& b) {
    double most = 0;
    for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a[i] - b[i])));
    return most;
  };
  EXPECT_LT(distance(logits(*ours, false), logits(*theirs, false)), 1e-5);
  EXPECT_GT(distance(logits(*ours, false), logits(*ours, true)), 0.1);
  EXPECT_LT(distance(logits(*ours, true), logits(*theirs, true)), 1e-3);
}

TEST(Peft, ConfigsAndWhatTheyMean) {
  const PeftConfig slora = ParsePeftConfig(R"({"peft_type":"LORA","r":16,"lora_alpha":8,"use_rslora":true,
    "target_modules":".*\\.(q|v)_proj"})",
                                           "c");
  EXPECT_EQ(slora.ScaleOf("x"), 2);
  EXPECT_TRUE(slora.Targets(kQuery));
  EXPECT_FALSE(slora.Targets(kDown));
  const auto parse = [](const std::string& more) {
    return ParsePeftConfig(R"({"peft_type":"LORA","r":8,"lora_alpha":8)" + more + "}", "c");
  };
  EXPECT_TRUE(parse(R"(,"target_modules":"all-linear")").Targets(kDown));
  const PeftConfig second = parse(R"(,"target_modules":["q_proj","down_proj"],"layers_to_transform":[1])");
  EXPECT_TRUE(second.Targets(kQuery));
  EXPECT_FALSE(second.Targets(kDown));
  const PeftConfig named =
      parse(R"(,"target_modules":["q_proj","down_proj"],"layers_to_transform":1,"layers_pattern":"layers")");
  EXPECT_TRUE(named.Targets(kQuery));
  EXPECT_FALSE(named.Targets(kDown));
  EXPECT_FALSE(parse(R"(,"target_modules":["q_proj"],"exclude_modules":["self_attn.q_proj"])").Targets(kQuery));
  EXPECT_FALSE(parse(R"(,"target_modules":["q_proj"],"exclude_modules":".*\\.1\\..*")").Targets(kQuery));
  // What says nothing about the product is taken, whatever it says.
  EXPECT_EQ(parse(R"(,"lora_dropout":0.1,"task_type":"CAUSAL_LM","peft_version":"0.18.0","init_lora_weights":"gaussian",
    "use_qalora":false,"alora_invocation_tokens":null,"target_parameters":[],"auto_mapping":{"a":1})")
                .ScaleOf("x"),
            1);
}

TEST(Peft, ConfigsThatAreRefused) {
  const auto refused = [](const std::string& json, const char* text, ErrorCode code = ErrorCode::kUsage) {
    try {
      ParsePeftConfig(json, "adapter_config.json");
      ADD_FAILURE() << json;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
      EXPECT_EQ(error.code(), code) << json;
    }
  };
  const auto with = [](const char* more) { return fmt::format(R"({{"peft_type":"LORA","lora_alpha":8,{}}})", more); };
  refused(R"({"peft_type":"IA3"})", "peft_type is 'IA3'");
  refused(R"({})", "peft_type is ''");
  refused(R"([])", "expected an object", ErrorCode::kFile);
  refused(R"({"peft_type":"LORA","r":8})", "adapter_config.json: lora_alpha is missing");
  refused(R"({"peft_type":"LORA","r":8,"lora_alpha":null})", "lora_alpha is missing");
  refused(with(R"("bias":"none")"), "adapter_config.json: r is missing");
  refused(with(R"("use_dora":true)"), "use_dora=true is not supported");
  refused(with(R"("bias":"all")"), "bias='all' is not supported");
  refused(with(R"("lora_bias":true)"), "lora_bias is set, which is not supported");
  refused(with(R"("alora_invocation_tokens":[1])"), "alora_invocation_tokens is set, which is not supported");
  refused(with(R"("layer_replication":[[0,1]])"), "layer_replication is set");
  refused(with(R"("init_lora_weights":"pissa_niter_16")"),
          "init_lora_weights='pissa_niter_16' changed the base weights too");
  refused(with(R"("modules_to_save":["lm_head"])"), "modules_to_save=[\"lm_head\"]");
  refused(with(R"("r":0)"), "r=0", ErrorCode::kFile);
  for (const char* other : {"\"x\"", "true", "4.5", "[4]"}) {
    refused(with(fmt::format("\"r\":{}", other).c_str()), "r has another type", ErrorCode::kFile);
  }
  refused(with(R"("r":8,"use_rslora":"yes")"), "use_rslora has another type", ErrorCode::kFile);
  refused(with(R"("r":8,"target_modules":"(")"), "is no regular expression", ErrorCode::kFile);
  refused(with(R"("r":8,"target_modules":[1])"), "target_modules has another type", ErrorCode::kFile);
  refused(with(R"("r":8,"rank_pattern":{"q":-1})"), "is no positive number", ErrorCode::kFile);
  refused(with(R"("r":8,"rank_pattern":{"q":2.5})"), "is no positive number", ErrorCode::kFile);
  refused(with(R"("r":8,"rank_pattern":[])"), "is no object", ErrorCode::kFile);
  refused(R"({"peft_type":"LORA")", "", ErrorCode::kFile);
  // PEFT's answer depends on the order of keys.
  const PeftConfig two = ParsePeftConfig(with(R"("r":8,"alpha_pattern":{"q_proj":4,"self_attn.q_proj":2})"), "c");
  EXPECT_THROW(two.ScaleOf(kQuery), Error);
  EXPECT_EQ(two.ScaleOf("q_proj"), 0.5f);
}

TEST(Peft, AdaptersOfOtherModelsNameModuleAndShapes) {
  const auto model = models::MakeModel(Config());
  const auto refused = [&](const char* text, auto change, const std::string& json = kGood) {
    auto tensors = GoodTensors();
    change(tensors);
    const TempFolder folder;
    WriteAdapter(folder.path(), json, tensors);
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
  refused("two tensors are lora_A of model.layers.1.self_attn.q_proj", [&](auto& t) {
    t[query + ".lora_A.default.weight"] = ops::RandomTensor({4, 24}, 1);
  });
  refused("lora_B.weight holds NaN or infinity", [&](auto& t) {
    std::vector<float> values(24 * 4, 0.5f);
    values[17] = std::numeric_limits<float>::infinity();
    t[query + ".lora_B.weight"] = Tensor::FromValues({24, 4}, DType::kF32, values);
  });
  // What the configuration promises.
  const auto targets = [](const char* list) {
    return fmt::format(R"({{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "rank_pattern": {{"down_proj": 2}},
                           "target_modules": [{}]}})",
                       list);
  };
  const auto none = [](auto&) {};
  refused("target_modules names c_attn, the model has no such projection\nit has down_proj, gate_proj", none,
          targets(R"("q_proj", "down_proj", "c_attn")"));
  refused("no factors of model.layers.0.self_attn.q_proj, which target_modules names", none,
          targets(R"("q_proj", "layers.0.mlp.down_proj")"));
  const TempFolder empty;
  EXPECT_THROW(ReadPeftAdapter(empty.path(), "x", *model), Error);
}

TEST(Peft, ExpertsAreRefusedByName) {
  const auto model = models::MakeModel(models::TinyMixtral());
  const TempFolder folder;
  const std::string expert = "base_model.model.model.layers.0.block_sparse_moe.experts.2.w1";
  WriteAdapter(folder.path(), R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["w1"]})",
               {{expert + ".lora_A.weight", ops::RandomTensor({4, 24}, 1)},
                {expert + ".lora_B.weight", ops::RandomTensor({20, 4}, 1)}});
  try {
    ReadPeftAdapter(folder.path(), "x", *model);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("model.layers.0.block_sparse_moe.experts.2.w1 is an expert, which is not supported"));
  }
}

TEST(Peft, ModelsWhoseNamesAreNotKnown) {
  const auto model = models::MakeModel(models::TinyGemma2());
  const TempFolder folder;
  WriteAdapter(folder.path(), kGood, GoodTensors());
  try {
    ReadPeftAdapter(folder.path(), "x", *model);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_EQ(error.message(), "adapters for a model like this one (decoder_block gemma2) are not supported");
  }
}

}  // namespace
}  // namespace octavo::weights
