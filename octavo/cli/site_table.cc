#include "octavo/cli/site_table.h"

#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/ops/dot.h"

namespace octavo {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostBytes = 64 << 20;

void CheckDepth(std::string_view text, std::string_view source) {
  int depth = 0;
  for (char c : text) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > 32) ThrowFile("{}: JSON nested deeper than 32 levels", source);
  }
}

Shape ReadShape(const Json& json) { return Shape(json.get<std::vector<int64_t>>()); }

SiteTableEntry ReadEntry(const Json& json) {
  SiteTableEntry entry;
  entry.path = json.at("path").get<std::string>();
  const std::string op = json.at("op").get<std::string>();
  const std::optional<ops::OpKind> kind = ops::OpKindByName(op);
  if (!kind) ThrowFile("unknown op '{}'", op);
  entry.op = *kind;
  entry.lhs = ReadShape(json.at("lhs_shape"));
  entry.rhs = ReadShape(json.at("rhs_shape"));
  if (entry.op == ops::OpKind::kDotGeneral) {
    const Json& dims = json.at("dims");
    entry.dims = {dims.at(0).at(0).get<std::vector<int>>(), dims.at(0).at(1).get<std::vector<int>>(),
                  dims.at(1).at(0).get<std::vector<int>>(), dims.at(1).at(1).get<std::vector<int>>()};
  } else if (entry.op == ops::OpKind::kEinsum) {
    entry.equation = json.at("einsum").get<std::string>();
  }
  if (json.contains("weight") && json.at("weight").is_string()) {
    entry.weight = json.at("weight").get<std::string>();
    entry.weight_is_lhs = json.value("weight_side", "rhs") == "lhs";
  }
  return entry;
}

}  // namespace

SiteTable ParseSiteTable(std::string_view text, std::string_view source) {
  if (text.size() > kMostBytes) ThrowFile("{}: {} bytes, at most {} are read", source, text.size(), kMostBytes);
  CheckDepth(text, source);
  SiteTable table;
  size_t index = 0;
  try {
    const Json json = Json::parse(text);
    table.name = json.value("name", std::string(source));
    for (const Json& entry : json.at("ops")) {
      table.entries.push_back(ReadEntry(entry));
      ++index;
    }
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kFile, fmt::format("{}: entry {}: {}", source, index, error.what()),
                "expected {\"name\": …, \"ops\": [{\"path\", \"op\", \"lhs_shape\", \"rhs_shape\", \"dims\" or "
                "\"einsum\", \"weight\"}, …]}");
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: entry {}: {}", source, index, error.message()), error.hint());
  }
  return table;
}

void RunSiteTable(const SiteTable& table, ops::Context& context) {
  context.StartModel();
  for (const SiteTableEntry& entry : table.entries) {
    const ops::Scope scope(context, entry.path);
    const Tensor lhs = Tensor::Meta(entry.lhs, DType::kF32), rhs = Tensor::Meta(entry.rhs, DType::kF32);
    const ops::Parameter weight{entry.weight, entry.weight_is_lhs ? lhs : rhs};
    const bool any = !entry.weight.empty();
    const ops::Operand left = any && entry.weight_is_lhs ? ops::Weight(context, weight) : ops::Activation(lhs);
    const ops::Operand right = any && !entry.weight_is_lhs ? ops::Weight(context, weight) : ops::Activation(rhs);
    switch (entry.op) {
      case ops::OpKind::kEinsum:
        ops::Einsum(context, entry.equation, left, right);
        break;
      case ops::OpKind::kRaggedDot:
      case ops::OpKind::kGmm: {
        const Tensor sizes = Tensor::Zeros({entry.rhs.rank() > 0 ? entry.rhs[0] : 0}, DType::kI32);
        ops::RaggedDot(context, left, right, sizes, entry.op);
        break;
      }
      default:
        ops::DotGeneral(context, left, right, entry.dims);
    }
  }
}

}  // namespace octavo
