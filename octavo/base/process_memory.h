// How much memory this process has used. For printed lines of jobs that promise to need little.
#pragma once

#include <cstdint>

namespace octavo {

// The most that was resident at any time, pages of mapped files included; 0 where the system does not say.
int64_t PeakResidentBytes();

}  // namespace octavo
