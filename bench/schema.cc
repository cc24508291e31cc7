// ./run bench schema tokenizer=PATH: what structured output costs for each token. No peer: the bar is 1 ms.
#include <cstdio>
#include <string_view>
#include <vector>

#include "bench/common/driver.h"
#include "bench/schema_runs.h"
#include "octavo/base/error.h"
#include "octavo/cli/args.h"

namespace octavo::bench {
namespace {

VerbSpec Spec() {
  VerbSpec spec;
  spec.name = "schema";
  spec.synopsis = "[tokenizer=PATH] [texts=N] [--json]";
  spec.summary = "structured output: seconds to compile a schema and to fill the mask of the next token";
  spec.details = "Texts are sampled through the masks of four schemas, twice: the first time nothing is remembered.";
  spec.options = {{"tokenizer", "PATH", "a tokenizer file or model folder (default: bytes)"},
                  {"texts", "N", "texts of each schema (default 20)"}};
  return spec;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  using namespace octavo;
  return bench::RunDriver(bench::Spec(), argc, argv, [](const Args& args) {
    const std::string path = args.Text("tokenizer", "");
    const auto tokenizer = path.empty() ? text::MakeByteTokenizer() : text::LoadTokenizer(path);
    const auto texts = static_cast<int>(args.Int("texts", 20, 1, 10'000));
    return bench::TimeSchemas(*tokenizer, texts, args.Switch("json")) < 1e-3 ? 0 : 3;
  });
}
