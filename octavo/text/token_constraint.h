// What the next token of a sequence may be: the interface between whoever knows a grammar (JSON schemas of structured
// output) and the sampler. One object per sequence, moved on token by token. It fails closed: when nothing may follow,
// the mask is empty and the sampler stops with an error instead of free text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace octavo::text {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Sets bit id % 32 of word id / 32 for every id that may come next, and clears all others. The mask has a bit for
  // each of the model's outputs, which may be more than there are tokens.
  virtual void Fill(std::span<uint32_t> mask) const = 0;
  // Moves on by a token that was allowed. False, and no change, when it was not.
  virtual bool Accept(int32_t token) = 0;
  // The text may end here: the ids that end a text are then in the mask too.
  virtual bool Complete() const = 0;
  // Another sequence that stands where this one does: samples of one request.
  virtual std::unique_ptr<TokenConstraint> Clone() const = 0;
};

}  // namespace octavo::text
