#include "octavo/base/process_memory.h"

#include <sys/resource.h>

namespace octavo {

int64_t PeakResidentBytes() {
  struct rusage usage = {};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace octavo
