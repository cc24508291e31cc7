// What --force may replace: a model that the converter could have written, never one that the source is a part of. Used
// by convert.cc before anything is read or written.
#pragma once

#include <filesystem>

#include "octavo/convert/convert.h"

namespace octavo::convert {

// A usage error unless `target` does not exist or may go: an empty folder or one with the files of a model and no
// folders in it, for GGUF a file of that format; in no case the source, a folder that holds it or one inside it.
void CheckReplaceable(const std::filesystem::path& target, const std::filesystem::path& source, TargetFormat format);

}  // namespace octavo::convert
