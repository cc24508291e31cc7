#include "octavo/base/temp_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "octavo/base/error.h"

namespace octavo {

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "octavo-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw Error(ErrorCode::kJob, fmt::format("cannot make a temporary folder {}: {}", name, std::strerror(errno)),
                "free some space, or set TMPDIR to a folder that can be written");
  }
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace octavo
