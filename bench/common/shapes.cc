#include "bench/common/shapes.h"

#include <fstream>
#include <sstream>

#include "octavo/base/error.h"

namespace octavo::bench {

std::vector<Shape> ReadShapes(const std::string& path) {
  std::ifstream file(path);
  if (!file) ThrowFile("cannot read the shapes in {}", path);
  std::vector<Shape> shapes;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line = line.substr(0, line.find('#'));
    std::istringstream words(line);
    Shape shape;
    if (!(words >> shape.name)) continue;
    std::string rest;
    const bool complete = static_cast<bool>(words >> shape.group >> shape.m >> shape.n >> shape.k >> shape.form);
    if (!complete || words >> rest || shape.m < 1 || shape.n < 1 || shape.k < 1 ||
        (shape.group != "train" && shape.group != "decode") ||
        (shape.form != "nn" && shape.form != "nt" && shape.form != "tn")) {
      throw Error(ErrorCode::kFile, fmt::format("{}:{}: not a shape: '{}'", path, number, line),
                  "expected: name train|decode M N K nn|nt|tn");
    }
    shapes.push_back(shape);
  }
  return shapes;
}

std::string ShapeFile(const std::string& name) { return std::string(OCTAVO_SOURCE_DIR) + "/bench/shapes/" + name; }

}  // namespace octavo::bench
