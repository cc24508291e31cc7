// An error as every verb shows it on stderr: what and where on the first line, the rest indented below it.
#pragma once

#include <string>

#include "octavo/base/error.h"

namespace octavo {

inline std::string ErrorText(const Error& error) {
  std::string text = "error: ", all = error.what();
  while (all.ends_with('\n')) all.pop_back();
  for (size_t i = 0; i < all.size(); ++i) {
    text += all[i];
    if (all[i] == '\n' && all[i + 1] != ' ') text += "  ";
  }
  return text + "\n";
}

}  // namespace octavo
