// Any text as an index of shards: plain names of files, or a file error.
#include <cstdlib>

#include "octavo/base/error.h"
#include "octavo/checkpoint/sharded.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    for (const auto& [tensor, shard] : octavo::ParseShardIndex({reinterpret_cast<const char*>(data), size}, "fuzz")) {
      if (shard.find('/') != std::string::npos || shard[0] == '.') std::abort();
    }
  } catch (const octavo::Error&) {
  }
  return 0;
}
