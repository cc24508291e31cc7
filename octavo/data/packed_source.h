// Rows of documents: the source of batches from a corpus. Documents follow one another in a row, each as a segment of
// its own with positions from 0; what does not fit goes on in the next row, so every token but the first of a document
// is a target exactly once in a pass.
#pragma once

#include <cstdint>
#include <memory>

#include "octavo/data/corpus.h"
#include "octavo/data/source.h"
#include "octavo/data/unit_order.h"

namespace octavo::data {

struct PackOptions {
  int64_t rows = 0, length = 0;
  bool packing = true;         // false: one document per row
  bool truncate = false;       // without packing: the rest of a long document is left out
  int64_t most_segments = -1;  // in a row; -1: any number
  int64_t passes = -1;         // over the data; -1: without end
};

std::unique_ptr<BatchSource> MakePackedSource(std::shared_ptr<const Corpus> corpus, const UnitOrder& order,
                                              const PackOptions& options);

}  // namespace octavo::data
