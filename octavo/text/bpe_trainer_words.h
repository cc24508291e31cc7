// The words of training texts and how often each occurs. Used by bpe_trainer.cc only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/thread_pool.h"

namespace octavo::text {

struct CountedWord {
  std::string text;
  int64_t count;
};

// The text of a pattern by its name. Throws a usage Error that lists the names.
std::string_view TrainerPattern(std::string_view name);

// Sorted by text: the same for any number of threads.
std::vector<CountedWord> CountWords(std::span<const std::string_view> texts, std::string_view pattern,
                                    ThreadPool& pool);

}  // namespace octavo::text
