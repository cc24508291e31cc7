#include "octavo/engine/validate.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace octavo::engine {
namespace {

struct Refusal {
  std::string param, reason, message, hint;
  bool operator==(const Refusal&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Refusal& refusal) {
  return out << refusal.param << " | " << refusal.reason << " | " << refusal.message << " | " << refusal.hint;
}

Refusal Refused(size_t prompt, int64_t new_tokens, RequestLimits limits) {
  Request request;
  request.prompt.assign(prompt, 1);
  request.max_new_tokens = new_tokens;
  try {
    Validate(request, limits);
  } catch (const RequestError& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return {error.param, error.reason, error.message(), error.hint()};
  }
  return {};
}

TEST(Validate, APromptThatIsTooLong) {
  EXPECT_EQ(Refused(5120, 16, {4096, 100, 8192}),
            (Refusal{"prompt", "context_length_exceeded", "prompt has 5120 tokens, the model takes 4096",
                     "shorten it, or raise max_target_length if the model allows (max_position_embeddings 8192)"}));
  EXPECT_EQ(Refused(5120, 16, {4096, 100, 4096}),
            (Refusal{"prompt", "context_length_exceeded", "prompt has 5120 tokens, the model takes 4096",
                     "shorten it; the model allows no larger max_target_length (max_position_embeddings 4096)"}));
  EXPECT_EQ(Refused(5120, 16, {4096, 100, 0}),
            (Refusal{"prompt", "context_length_exceeded", "prompt has 5120 tokens, the model takes 4096",
                     "shorten it, or raise max_target_length if the model allows"}));
  // It fills the context: scoring it is all that can be done.
  EXPECT_EQ(Refused(4096, 1, {4096, 100, 8192}),
            (Refusal{"prompt", "context_length_exceeded",
                     "prompt has 4096 tokens, the model takes 4096 together with the answer",
                     "shorten it, or raise max_target_length if the model allows (max_position_embeddings 8192)"}));
  EXPECT_EQ(Refused(4096, 0, {4096, 100, 8192}), Refusal{});
  EXPECT_EQ(Refused(4095, 1, {4096, 100, 8192}), Refusal{});
}

TEST(Validate, MoreTokensThanThereIsRoomFor) {
  EXPECT_EQ(
      Refused(4000, 97, {4096, 100, 8192}),
      (Refusal{"max_new_tokens", "context_length_exceeded",
               "prompt has 4000 tokens and 97 new ones are asked for, the model takes 4096", "ask for at most 96"}));
  EXPECT_EQ(Refused(4000, 96, {4096, 100, 8192}), Refusal{});
  EXPECT_EQ(Refused(4000, -1, {4096, 100, 8192}),
            (Refusal{"max_new_tokens", "invalid_value", "max_new_tokens=-1 is negative", ""}));
}

TEST(Validate, AnEmptyPrompt) {
  const Refusal empty{"prompt", "invalid_value", "prompt is empty", "prompt='…', prompt=@FILE or text on stdin"};
  EXPECT_EQ(Refused(0, 16, {4096, 100, 8192}), empty);
  EXPECT_EQ(Refused(0, 0, {4096, 100, 0}), empty);
  EXPECT_EQ(Refused(0, 9999, {4096, 100, 0}), empty);
}

}  // namespace
}  // namespace octavo::engine
