// The built-in text that convert's max_kl and compare measure on when none is given: a few pages of plays, in the
// binary. Too small and too well known for a judgement of a model; enough to see what a conversion changed.
#pragma once

#include <string_view>

namespace octavo::eval {

std::string_view SampleText();

}  // namespace octavo::eval
