#include "octavo/models/model.h"

namespace octavo::models {

int64_t ParameterCount(const Model& model) {
  int64_t count = 0;
  for (const ops::Parameter* parameter : model.parameters()) count += parameter->shape().size();
  return count;
}

}  // namespace octavo::models
