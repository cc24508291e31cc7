// `--isa avx2`: Octavo and both peers are held to one instruction set, so that a comparison is between algorithms. The
// peers look at the environment when they are loaded, hence the process starts itself again with it.
#pragma once

#include <string>

namespace octavo::bench {

inline constexpr const char* kIsaHelp =
    "avx2, avx512 or amx: hold Octavo and the peers to it (default: the machine's best)";

// Returns when the process runs as asked; an unknown name is a usage error. An empty name leaves everyone the best.
void HoldToIsa(const std::string& name, char** argv);

}  // namespace octavo::bench
