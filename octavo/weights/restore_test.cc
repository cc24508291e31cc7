#include "octavo/weights/restore.h"

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/weights/convert_floats.h"
#include "octavo/weights/maxtext_names.h"

namespace octavo::weights {
namespace {

Tensor Numbers(const Shape& shape, float first) {
  std::vector<float> values(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  return Tensor::FromValues<float>(shape, DType::kF32, values);
}

// Two layers with a kernel [2, 3] and a scale [2], two experts' layers, an embedding.
struct TinyModel {
  std::vector<ops::Parameter> owned;
  std::vector<ops::Parameter*> parameters;

  TinyModel() {
    owned.push_back({"token_embedder/embedding", Tensor::Meta({4, 2}, DType::kF32)});
    for (const char* layer : {"decoder/dense_layers_0/", "decoder/moe_layers_0/", "decoder/moe_layers_1/"}) {
      owned.push_back({std::string(layer) + "mlp/kernel", Tensor::Meta({2, 3}, DType::kF32)});
      owned.push_back({std::string(layer) + "norm/scale", Tensor::Meta({2}, DType::kF32)});
    }
    for (ops::Parameter& parameter : owned) parameters.push_back(&parameter);
  }
  const Tensor& At(const std::string& name) const {
    for (const ops::Parameter& parameter : owned) {
      if (parameter.name == name) return parameter.tensor();
    }
    ThrowUsage("no {}", name);
  }
};

std::map<std::string, Tensor> UnrolledTree() {
  return {{"token_embedder/embedding", Numbers({4, 2}, 0)},
          {"decoder/dense_layers_0/mlp/kernel", Numbers({2, 3}, 100)},
          {"decoder/dense_layers_0/norm/scale", Numbers({2}, 200)},
          {"decoder/moe_layers_0/mlp/kernel", Numbers({2, 3}, 300)},
          {"decoder/moe_layers_0/norm/scale", Numbers({2}, 400)},
          {"decoder/moe_layers_1/mlp/kernel", Numbers({2, 3}, 500)},
          {"decoder/moe_layers_1/norm/scale", Numbers({2}, 600)}};
}

std::string ErrorOf(const std::map<std::string, Tensor>& tree, const RestoreOptions& options = {}) {
  TinyModel model;
  try {
    RestoreParameters(SourceOf(tree, "the tree"), model.parameters, options);
  } catch (const Error& error) {
    for (const ops::Parameter& parameter : model.owned) EXPECT_TRUE(parameter.tensor().is_meta()) << parameter.name;
    EXPECT_EQ(error.code(), ErrorCode::kFile);
    return error.what();
  }
  return "";
}

TEST(MaxTextNames, ScannedAndUnrolled) {
  EXPECT_EQ(ScannedNameOf("decoder/layers_12/mlp/wi_0/kernel"), (StackedName{"decoder/layers/mlp/wi_0/kernel", 12}));
  EXPECT_EQ(ScannedNameOf("decoder/moe_layers_1/MoeBlock_0/wo"), (StackedName{"decoder/moe_layers/MoeBlock_0/wo", 1}));
  EXPECT_EQ(ScannedNameOf("decoder/decoder_norm/scale"), std::nullopt);
  EXPECT_EQ(ScannedNameOf("decoder/layers/MoeBlock_0/wo"), std::nullopt);
  EXPECT_EQ(ScannedNameOf("decoder/layers_x/wo"), std::nullopt);
  EXPECT_EQ(UnrolledNameOf("decoder/layers/mlp/wi_0/kernel", 12), "decoder/layers_12/mlp/wi_0/kernel");
  EXPECT_EQ(UnrolledNameOf("decoder/dense_layers/wo", 0), "decoder/dense_layers_0/wo");
  EXPECT_EQ(UnrolledNameOf("token_embedder/embedding", 0), std::nullopt);
  EXPECT_EQ(CollectionOf({"params/params/a", "params/params/b"}), "params/params/");
  EXPECT_EQ(CollectionOf({"params/params/a", "params/b"}), "params/");
  EXPECT_EQ(CollectionOf({"params/a", "b"}), "");
  EXPECT_EQ(StackedShape({2, 3}, 5, 1), Shape({2, 5, 3}));
  EXPECT_EQ(StackedShape({2, 3}, 5, 0), Shape({5, 2, 3}));
  EXPECT_EQ(StackedShape({2}, 5, 3), Shape({2, 5}));
}

TEST(Restore, EveryLayoutGivesTheSameParameters) {
  for (const bool scanned : {false, true}) {
    for (const int axis : {0, 1, 2}) {
      for (const char* collection : {"", "params/", "params/params/"}) {
        const std::map<std::string, Tensor> tree = ToMaxTextTree(UnrolledTree(), scanned, axis, collection);
        EXPECT_EQ(tree.size(), scanned ? 5u : 7u);
        TinyModel model;
        RestoreParameters(SourceOf(tree, "the tree"), model.parameters, {.param_scan_axis = axis});
        for (const auto& [name, tensor] : UnrolledTree()) EXPECT_TRUE(BitEqual(model.At(name), tensor)) << name;
      }
    }
  }
}

TEST(Restore, StacksOnTheScanAxis) {
  const std::map<std::string, Tensor> tree = ToMaxTextTree(UnrolledTree(), true, 1);
  const Tensor& kernel = tree.at("params/decoder/moe_layers/mlp/kernel");
  EXPECT_EQ(kernel.ToVector<float>(), (std::vector<float>{300, 301, 302, 500, 501, 502, 303, 304, 305, 503, 504, 505}));
  EXPECT_EQ(tree.at("params/decoder/moe_layers/norm/scale").ToVector<float>(),
            (std::vector<float>{400, 600, 401, 601}));
}

TEST(Restore, DeletedTensorIsNamed) {
  for (const auto& [name, tensor] : UnrolledTree()) {
    auto tree = UnrolledTree();
    tree.erase(name);
    const std::string error = ErrorOf(tree);
    EXPECT_NE(error.find(name + ": missing"), std::string::npos) << error;
    EXPECT_NE(error.find("1 of its tensors"), std::string::npos) << error;
  }
}

TEST(Restore, RenamedTensorIsMissingAndSuperfluous) {
  auto tree = UnrolledTree();
  tree["decoder/moe_layers_1/norm/scales"] = tree["decoder/moe_layers_1/norm/scale"];
  tree.erase("decoder/moe_layers_1/norm/scale");
  const std::string error = ErrorOf(tree);
  EXPECT_NE(error.find("decoder/moe_layers_1/norm/scale: missing; did you mean 'decoder/moe_layers_1/norm/scales'?"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("decoder/moe_layers_1/norm/scales: superfluous"), std::string::npos) << error;
}

TEST(Restore, TransposedTensorIsNamedInEveryLayout) {
  for (const bool scanned : {false, true}) {
    auto tree = ToMaxTextTree(UnrolledTree(), scanned, 1, "");
    const std::string name = scanned ? "decoder/moe_layers/mlp/kernel" : "decoder/moe_layers_1/mlp/kernel";
    tree[name] = tree[name].Transpose().Contiguous();
    const std::string error = ErrorOf(tree);
    EXPECT_NE(error.find(name + ": expected shape "), std::string::npos) << error;
    EXPECT_NE(error.find("axes in another order"), std::string::npos) << error;
  }
}

TEST(Restore, AnotherTypeIsAFaultUnlessConverted) {
  auto tree = UnrolledTree();
  const std::string name = "decoder/dense_layers_0/mlp/kernel";
  tree[name] = ConvertFloats(tree[name], DType::kBF16);
  EXPECT_NE(ErrorOf(tree).find(name + ": expected f32, found bf16"), std::string::npos) << ErrorOf(tree);
  TinyModel model;
  RestoreParameters(SourceOf(tree, "the tree"), model.parameters, {.convert_floats = true});
  EXPECT_TRUE(BitEqual(model.At(name), Numbers({2, 3}, 100)));
  tree[name] = Tensor::Zeros({2, 3}, DType::kI32);
  EXPECT_NE(ErrorOf(tree, {.convert_floats = true}).find("expected f32, found i32"), std::string::npos);
}

TEST(Restore, WrongNumberOfLayersAndBothSpellings) {
  auto tree = ToMaxTextTree(UnrolledTree(), true, 1, "params/");
  const std::string stack = "params/decoder/moe_layers/norm/scale";
  tree[stack] = Numbers({2, 3}, 0);
  EXPECT_NE(ErrorOf(tree).find("decoder/moe_layers/norm/scale: expected shape [2, 2], found [2, 3]"),
            std::string::npos);
  tree = ToMaxTextTree(UnrolledTree(), true, 1, "params/");
  tree["params/decoder/moe_layers_0/norm/scale"] = Numbers({2}, 0);
  EXPECT_NE(ErrorOf(tree).find("superfluous"), std::string::npos);
}

TEST(Restore, AllFaultsInOneError) {
  auto tree = UnrolledTree();
  tree.erase("token_embedder/embedding");
  tree["decoder/moe_layers_0/mlp/kernel"] = Numbers({3, 2}, 0);
  tree["decoder/moe_layers_1/norm/scale"] = Tensor::Zeros({2}, DType::kI8);
  tree["opt/count"] = Numbers({1}, 0);
  const std::string error = ErrorOf(tree);
  EXPECT_NE(error.find("4 of its tensors"), std::string::npos) << error;
  for (const char* part : {"embedding: missing", "found [3, 2]", "found i8", "opt/count: superfluous"}) {
    EXPECT_NE(error.find(part), std::string::npos) << part;
  }
}

TEST(Restore, HoleInAStackCannotBeWritten) {
  auto unrolled = UnrolledTree();
  unrolled.erase("decoder/moe_layers_0/mlp/kernel");
  EXPECT_THROW(ToMaxTextTree(unrolled, true), Error);
}

TEST(ConvertFloats, RoundsOnce) {
  const Tensor x = Tensor::FromValues<float>({3}, DType::kF32, std::vector<float>{1.00390625f, -2.5f, 65536.0f});
  const Tensor bf16 = ConvertFloats(x, DType::kBF16);
  EXPECT_EQ(ConvertFloats(bf16, DType::kF32).ToVector<float>(), (std::vector<float>{1.0f, -2.5f, 65536.0f}));
  EXPECT_EQ(ConvertFloats(x, DType::kF16).ToVector<uint16_t>(), (std::vector<uint16_t>{0x3c04, 0xc100, 0x7c00}));
  EXPECT_THROW(ConvertFloats(x, DType::kI8), Error);
}

}  // namespace
}  // namespace octavo::weights
