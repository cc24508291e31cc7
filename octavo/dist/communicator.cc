#include "octavo/dist/communicator.h"

#include <cstring>

#include "octavo/base/check.h"

namespace octavo {

void SelfCommunicator::Broadcast(std::span<std::byte>, int root) { OCTAVO_CHECK(root == 0); }

void SelfCommunicator::AllGather(std::span<const std::byte> mine, std::span<std::byte> all) {
  OCTAVO_CHECK(mine.size() == all.size());
  if (!mine.empty()) std::memmove(all.data(), mine.data(), mine.size());
}

}  // namespace octavo
