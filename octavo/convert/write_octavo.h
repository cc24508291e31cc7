// The target in Octavo's own form: every parameter through the reader into a checkpoint, one at a time.
#pragma once

#include "octavo/checkpoint/checkpoint_writer.h"
#include "octavo/convert/convert.h"
#include "octavo/weights/parameter_reader.h"

namespace octavo::convert {

// The parameters in the order of writing, with the bytes that the plan gives them.
std::vector<PlannedParameter> PlanTarget(const ConvertRequest& request, weights::ParameterReader& reader);

// Writes parameters, state, carried files and the manifest. Fills in parameters, quantized and carried of the summary.
void WriteOctavo(const ConvertRequest& request, weights::ParameterReader& reader, CheckpointWriter& writer,
                 ConvertSummary& summary);

}  // namespace octavo::convert
