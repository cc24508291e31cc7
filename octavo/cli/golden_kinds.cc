#include "octavo/cli/golden.h"

namespace octavo {

std::vector<GoldenKind> GoldenKinds() {
  std::vector<GoldenKind> all;
  for (const auto& kinds : {FormatKinds(), ThreefryKinds(), ArrayKinds(), DotKinds(), TrainingDotKinds(), AqtKinds(),
                            Fp8Kinds(), SparsityKinds(), RuleKinds()}) {
    all.insert(all.end(), kinds.begin(), kinds.end());
  }
  return all;
}

std::vector<GoldenFolderKind> GoldenFolderKinds() {
  return {TemplateFolderKind(), TokenizerFolderKind(), TokenListFolderKind(), GgufBlocksFolderKind(),
          MaxTextFolderKind(),  HfFolderKind(),        GgufFolderKind(),      StoriesFolderKind()};
}

}  // namespace octavo
