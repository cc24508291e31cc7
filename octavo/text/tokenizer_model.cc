#include "octavo/text/tokenizer_model.h"

namespace octavo::text {

void Model::Encode(std::string_view word, bool plain, ModelScratch& scratch, std::vector<int32_t>& out) const {
  std::vector<ModelToken> tokens;
  Tokenize(word, plain, scratch, tokens);
  for (const ModelToken& token : tokens) out.push_back(token.id);
}

}  // namespace octavo::text
