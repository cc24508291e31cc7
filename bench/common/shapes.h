// Shapes as text. One product per line:
//     name  group  M  N  K  form
// `group` is train or decode (M <= 8; the weights rotate through copies larger than the caches). `form` says how the
// operands lie in memory: nn = A·B (forward), nt = A·Bᵀ (gradient of the input), tn = Aᵀ·B (gradient of the weight).
// `#` starts a comment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace octavo::bench {

struct Shape {
  std::string name;
  std::string group;
  int64_t m = 0, n = 0, k = 0;
  std::string form;

  bool decode() const { return group == "decode"; }
  bool a_transposed() const { return form[0] == 't'; }
  bool b_transposed() const { return form[1] == 't'; }
  double macs() const { return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

// Throws a file Error that names the line.
std::vector<Shape> ReadShapes(const std::string& path);

// Path of a file in bench/shapes/.
std::string ShapeFile(const std::string& name);

}  // namespace octavo::bench
