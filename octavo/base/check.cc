#include "octavo/base/check.h"

#include <string_view>

#include "octavo/base/error.h"

namespace octavo {

void CheckFailed(const char* expression, const char* file, int line) {
  std::string_view path(file);
  if (auto at = path.rfind("octavo/"); at != std::string_view::npos) path.remove_prefix(at);
  throw Error(ErrorCode::kJob, fmt::format("internal check failed at {}:{}: {}", path, line, expression),
              "this is a bug in octavo; please report it with the output of octavo doctor");
}

}  // namespace octavo
