// Ranks as threads of one process: shows on one machine, in tests and under the thread sanitizer, that a result does
// not depend on the number of ranks. Memory is shared, so a gather is a copy between two barriers.
#pragma once

#include "octavo/base/function_ref.h"
#include "octavo/dist/communicator.h"

namespace octavo {

// Runs work(communicator) once per rank, each on a thread of its own, and returns when all are done. When a rank
// throws, the others are woken from whatever call they wait in and end too; the error of the lowest rank that failed
// by itself is rethrown.
void RunThreadRanks(int ranks, FunctionRef<void(Communicator&)> work);

}  // namespace octavo
