// How much memory tensors hold, for estimates, reports and tests of remat: a count of the process, kept by Storage.
// Mapped files and other people's memory do not count.
#pragma once

#include <cstdint>

namespace octavo {

int64_t TensorBytes();      // held by live tensors now
int64_t PeakTensorBytes();  // the most since the last reset
void ResetPeakTensorBytes();

// Freed tensors leave their memory to the next ones; this gives it back to the system. For the end of a phase that
// needed more than the next will: after loading.
void ReleaseFreeTensorMemory();

}  // namespace octavo
