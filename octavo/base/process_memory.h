// How much memory this process has used, and how much it may take. For printed lines of jobs that promise to need
// little, and for refusing what cannot fit before it is begun.
#pragma once

#include <cstdint>
#include <filesystem>

namespace octavo {

// The most that was resident at any time, pages of mapped files included; 0 where the system does not say.
int64_t PeakResidentBytes();

// What can still be taken without swapping: what the system has left, or what this process's control groups (version 1
// or 2, with those around them) allow, whichever is less. Clean pages of files count as free. 0 where the system does
// not say. `root` is for tests.
int64_t AvailableMemory(const std::filesystem::path& root = "/");

}  // namespace octavo
