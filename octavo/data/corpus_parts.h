// The two kinds of files that a corpus is made of.
#pragma once

#include <memory>

#include "octavo/data/corpus.h"
#include "octavo/data/plain_file.h"

namespace octavo::data {

std::unique_ptr<CorpusPart> MakeTextPart(PlainFile file, bool json, const CorpusOptions& options);
// .bin or .npy.
std::unique_ptr<CorpusPart> MakeTokenPart(PlainFile file, const CorpusOptions& options);

// Size and digest of the first and last bytes of a file.
std::string IdentityOf(const PlainFile& file);

}  // namespace octavo::data
