// For tests: what the error of an action that must fail says.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "octavo/base/error.h"

namespace octavo {

// All lines of an error with this code.
template <typename Action>
std::string ErrorText(ErrorCode code, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

// The first line of a usage error.
template <typename Action>
std::string UsageMessage(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage) << error.what();
    return error.message();
  }
  return "no error";
}

}  // namespace octavo
