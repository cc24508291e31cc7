#include "bench/schema_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string_view>
#include <vector>

#include "octavo/text/json_schema.h"
#include "octavo/text/mask_cache.h"

namespace octavo::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Named {
  const char *name, *schema;
};

// An object of plain fields, lists of objects with patterns and bounds, a tree that refers to itself, anything at all.
constexpr Named kSchemas[] = {
    {"person",
     R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":130},"email":{"type":"string","format":"email"},"tags":{"type":"array","items":{"type":"string"},"maxItems":5}},"required":["name","age"],"additionalProperties":false})"},
    {"orders",
     R"({"type":"array","items":{"type":"object","properties":{"id":{"type":"string","pattern":"^[A-Z]{3}-\\d{4}$"},"kind":{"enum":["new","open","closed"]},"price":{"type":"number","minimum":0,"maximum":1000},"note":{"anyOf":[{"type":"string","maxLength":200},{"type":"null"}]}},"required":["id","kind","price","note"],"additionalProperties":false},"maxItems":20})"},
    {"tree",
     R"({"$ref":"#/$defs/T","$defs":{"T":{"type":"object","properties":{"value":{"type":"string"},"children":{"type":"array","items":{"$ref":"#/$defs/T"},"maxItems":3}},"required":["value","children"],"additionalProperties":false}}})"},
    {"any", R"({"type":"object"})"},
};

struct Cost {
  std::vector<double> fills;
  size_t tokens = 0;

  double Mean() const {
    double sum = 0;
    for (double seconds : fills) sum += seconds;
    return fills.empty() ? 0 : sum / static_cast<double>(fills.size());
  }
  double At(double share) {
    std::sort(fills.begin(), fills.end());
    return fills.empty() ? 0 : fills[static_cast<size_t>(share * static_cast<double>(fills.size() - 1))];
  }
};

// Samples one text; every second token is the first allowed one of a random stretch, so that long tokens occur too.
void SampleOne(const text::TokenConstraint& start, const text::VocabularyBytes& vocabulary, uint64_t seed, Cost& cost) {
  std::mt19937_64 engine(seed);
  const auto constraint = start.Clone();
  std::vector<uint32_t> mask((static_cast<size_t>(vocabulary.size()) + 31) / 32);
  for (int step = 0; step < 200; ++step) {
    const auto begin = Clock::now();
    constraint->Fill(mask);
    cost.fills.push_back(Since(begin));
    const size_t from = engine() % mask.size();
    int32_t token = -1;
    // In the second half what closes comes first.
    const bool close = step > 100;
    for (int32_t id = 0; close && id < 300 && token < 0; ++id) {
      const std::string_view bytes = vocabulary.bytes(id);
      const bool set = (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
      if (set && (bytes == "\"" || bytes == "}" || bytes == "]")) token = id;
    }
    for (size_t i = 0; i < mask.size() && token < 0; ++i) {
      const size_t word = (from + i) % mask.size();
      if (mask[word] != 0) token = static_cast<int32_t>(word * 32) + __builtin_ctz(mask[word]);
    }
    if (token < 0 || !constraint->Accept(token)) return;
    ++cost.tokens;
  }
}

}  // namespace

double TimeSchemas(const text::Tokenizer& tokenizer, int texts, bool json) {
  auto begin = Clock::now();
  const auto vocabulary = text::VocabularyBytes::Make(tokenizer);
  if (!json) fmt::print("{:<8} {} tokens prepared in {:.0f} ms\n", "", vocabulary->size(), 1e3 * Since(begin));
  double worst = 0;
  for (const Named& named : kSchemas) {
    begin = Clock::now();
    const auto start = text::CompileJsonSchema(named.schema, vocabulary);
    const double compile = Since(begin);
    Cost cold, warm;
    for (Cost* cost : {&cold, &warm}) {
      for (int i = 0; i < texts; ++i) SampleOne(*start, *vocabulary, static_cast<uint64_t>(i), *cost);
    }
    worst = std::max(worst, warm.Mean());
    constexpr std::string_view kJson =
        "{{\"event\":\"schema\",\"schema\":\"{}\",\"compile_ms\":{:.3f},\"cold_ms\":{:.4f},\"mean_ms\":{:.4f},"
        "\"p99_ms\":{:.4f},\"tokens\":{},\"cache_mib\":{:.2f}}}\n";
    constexpr std::string_view kLine =
        "{:<8} compile {:6.2f} ms   mask, first time {:.3f} ms   then mean {:.4f} ms, p99 {:.3f} ms over {} tokens   "
        "cache {:.1f} MiB\n";
    fmt::print(fmt::runtime(json ? kJson : kLine), named.name, 1e3 * compile, 1e3 * cold.Mean(), 1e3 * warm.Mean(),
               1e3 * warm.At(0.99), warm.tokens, static_cast<double>(vocabulary->cache().bytes()) / (1 << 20));
  }
  return worst;
}

}  // namespace octavo::bench
