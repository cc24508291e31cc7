// llama.cpp's logits for rows of token ids, for tools/check_exchange. Not part of the build:
//   c++ -I LLAMA/include -I LLAMA/ggml/include tools/llama_logits.cc -o llama_logits -L BIN -lllama -lggml -lggml-base
//   -Wl,-rpath,BIN          (LLAMA: llama.cpp's sources; BIN: the folder of its shared libraries)
// usage: llama_logits FILE.gguf OUT ID,ID,... [ID,ID,...]     OUT: float32 [rows, ids, vocabulary]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "llama.h"

namespace {

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "llama_logits: %s\n", what);
  std::exit(1);
}

std::vector<llama_token> IdsOf(const std::string& text) {
  std::vector<llama_token> ids;
  for (size_t at = 0; at < text.size();) {
    ids.push_back(std::atoi(text.c_str() + at));
    const size_t comma = text.find(',', at);
    at = comma == std::string::npos ? text.size() : comma + 1;
  }
  return ids;
}

// A context of its own for each row; floats in the cache, so that nothing but the weights is rounded.
void WriteRow(llama_model* model, const std::vector<llama_token>& ids, std::FILE* out) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = 256;
  params.n_threads = params.n_threads_batch = 1;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) Fail("no context");
  const auto count = static_cast<int32_t>(ids.size());
  llama_batch batch = llama_batch_init(count, 0, 1);
  batch.n_tokens = count;
  for (int32_t i = 0; i < count; ++i) {
    batch.token[i] = ids[static_cast<size_t>(i)];
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  if (llama_decode(context, batch) != 0) Fail("llama_decode failed");
  const auto vocabulary = static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
  for (int32_t i = 0; i < count; ++i) {
    if (std::fwrite(llama_get_logits_ith(context, i), sizeof(float), vocabulary, out) != vocabulary)
      Fail("write failed");
  }
  llama_batch_free(batch);
  llama_free(context);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) Fail("usage: llama_logits FILE.gguf OUT ID,ID,... [ID,ID,...]");
  llama_backend_init();
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 0;
  llama_model* model = llama_model_load_from_file(argv[1], params);
  if (model == nullptr) Fail("llama.cpp does not load the file");
  std::FILE* out = std::fopen(argv[2], "wb");
  if (out == nullptr) Fail("cannot write");
  for (int i = 3; i < argc; ++i) WriteRow(model, IdsOf(argv[i]), out);
  if (std::fclose(out) != 0) Fail("write failed");
  llama_model_free(model);
}
