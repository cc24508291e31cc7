#include "octavo/eval/sample_text.h"

#include "octavo/base/embedded_file.h"

namespace octavo {
std::span<const EmbeddedFile> EmbeddedSamples();  // made by cmake/embed.cmake
}

namespace octavo::eval {

std::string_view SampleText() { return EmbeddedSamples()[0].text; }

}  // namespace octavo::eval
