#include "octavo/weights/maxtext_names.h"

#include <algorithm>
#include <charconv>

#include "octavo/base/error.h"

namespace octavo::weights {
namespace {

constexpr std::string_view kStack = "layers";

bool IsNumber(std::string_view text) {
  return !text.empty() && text.size() <= 9 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// One part of a path: [begin, end).
struct Part {
  size_t begin, end;
};

std::vector<Part> PartsOf(std::string_view path) {
  std::vector<Part> parts;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    parts.push_back({begin, end});
    begin = end + 1;
  }
  return parts;
}

}  // namespace

std::optional<StackedName> ScannedNameOf(std::string_view unrolled) {
  for (const Part& part : PartsOf(unrolled)) {
    const std::string_view text = unrolled.substr(part.begin, part.end - part.begin);
    const size_t underscore = text.rfind('_');
    if (underscore == std::string_view::npos || !text.substr(0, underscore).ends_with(kStack)) continue;
    const std::string_view number = text.substr(underscore + 1);
    if (!IsNumber(number)) continue;
    StackedName stacked;
    std::from_chars(number.data(), number.data() + number.size(), stacked.layer);
    stacked.name = std::string(unrolled.substr(0, part.begin + underscore)) + std::string(unrolled.substr(part.end));
    return stacked;
  }
  return std::nullopt;
}

std::optional<std::string> UnrolledNameOf(std::string_view scanned, int64_t layer) {
  for (const Part& part : PartsOf(scanned)) {
    if (!scanned.substr(part.begin, part.end - part.begin).ends_with(kStack)) continue;
    return fmt::format("{}_{}{}", scanned.substr(0, part.end), layer, scanned.substr(part.end));
  }
  return std::nullopt;
}

std::string CollectionOf(const std::vector<std::string>& names) {
  for (const std::string_view collection : {"params/params/", "params/"}) {
    const auto starts = [&](const std::string& name) { return name.starts_with(collection); };
    if (!names.empty() && std::all_of(names.begin(), names.end(), starts)) return std::string(collection);
  }
  return "";
}

int ScanAxisOf(const Shape& one_layer, int param_scan_axis) {
  if (param_scan_axis < 0) ThrowUsage("param_scan_axis={}: expected 0 or more", param_scan_axis);
  return std::min(param_scan_axis, one_layer.rank());
}

Shape StackedShape(const Shape& one_layer, int64_t layers, int param_scan_axis) {
  std::vector<int64_t> dims(one_layer.begin(), one_layer.end());
  dims.insert(dims.begin() + ScanAxisOf(one_layer, param_scan_axis), layers);
  return Shape(dims);
}

}  // namespace octavo::weights
