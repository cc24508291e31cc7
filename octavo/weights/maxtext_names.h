// MaxText's spelling of a parameter tree and ours. There, layers may be scanned: one tensor holds all of them, stacked
// on param_scan_axis, under "layers" instead of "layers_3"; and names may begin with the collections "params/" or
// "params/params/". Ours are unrolled and bare: "decoder/layers_3/mlp/wi_0/kernel". Knows names and axes only;
// restore.h and layout.h move the values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/tensor/shape.h"

namespace octavo::weights {

// Where an unrolled parameter lies in a scanned tree.
struct StackedName {
  std::string name;   // "decoder/layers/mlp/wi_0/kernel", "decoder/moe_layers/…"
  int64_t layer = 0;  // position on the scan axis

  bool operator==(const StackedName&) const = default;
};

// nullopt for what is in no layer: embeddings, the final norm, the head.
std::optional<StackedName> ScannedNameOf(std::string_view unrolled);

// "decoder/layers/mlp/wi_0/kernel", 3 -> "decoder/layers_3/mlp/wi_0/kernel"; nullopt when no part of the name is a
// stack of layers.
std::optional<std::string> UnrolledNameOf(std::string_view scanned, int64_t layer);

// The collection that every name begins with: "params/params/", "params/" or nothing.
std::string CollectionOf(const std::vector<std::string>& names);

// The axis of a stack of parameters of this shape: `param_scan_axis`, or the last one when the parameter has fewer.
int ScanAxisOf(const Shape& one_layer, int param_scan_axis);

// One layer's shape with the layers' axis in it.
Shape StackedShape(const Shape& one_layer, int64_t layers, int param_scan_axis);

}  // namespace octavo::weights
