#include "bench/engine_service.h"

#include <chrono>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/engine/collector.h"
#include "octavo/engine/scheduler.h"
#include "octavo/engine/serving_model.h"
#include "octavo/kernels/isa.h"

namespace octavo::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr int kPrompt = 64, kAnswer = 64;

engine::Request RequestOf(int number) {
  engine::Request request;
  for (int i = 0; i < kPrompt; ++i) request.prompt.push_back((number * 37 + i * 11) % 250);
  request.sampling.temperature = 0.8;
  request.sampling.seed = static_cast<uint64_t>(number);
  request.max_new_tokens = kAnswer;
  request.ignore_eos = true;
  return request;
}

double TokensPerSecond(engine::Scheduler& scheduler, int requests, int first) {
  std::vector<engine::Collector> collectors(static_cast<size_t>(requests));
  const auto start = Clock::now();
  for (int i = 0; i < requests; ++i) {
    scheduler.Submit(RequestOf(first + i), collectors[static_cast<size_t>(i)].listener());
  }
  int64_t tokens = 0;
  for (const engine::Collector& one : collectors) {
    const engine::Answers answers = one.Wait();
    if (answers.samples.at(0).finish != engine::Finish::kLength) {
      throw Error(ErrorCode::kJob, "a request failed: " + answers.samples[0].error);
    }
    tokens += answers.usage.completion_tokens;
  }
  return static_cast<double>(tokens) / Since(start);
}

}  // namespace

Throughput ServeTogether(engine::Runner& runner, int requests) {
  const std::unique_ptr<text::Tokenizer> tokenizer = text::LoadTokenizer("bytes");
  engine::SchedulerOptions options;
  options.batch.slots = requests;
  options.batch.step_tokens = 256;
  options.batch.isa = kernels::ChooseIsa().isa;
  engine::Scheduler scheduler(runner, *tokenizer, options);
  Throughput result;
  result.one = TokensPerSecond(scheduler, 1, 1000);
  result.many = TokensPerSecond(scheduler, requests, 0);
  return result;
}

FirstByte TimeFirstByte(const std::filesystem::path& model, int threads) {
  FirstByte result;
  const auto start = Clock::now();
  engine::ServingOptions options;
  options.path = model.string();
  options.tokenizer_path = "bytes";
  options.context_length = 512;
  options.slots = 1;
  options.threads = threads;
  const std::unique_ptr<engine::ServingModel> served = engine::ServingModel::Open(options);
  result.open = Since(start);
  const std::unique_ptr<engine::Scheduler> scheduler = served->Start();
  engine::Collector collector;
  engine::Request request;
  request.prompt = {1, 2, 3, 4, 5, 6, 7, 8};
  request.max_new_tokens = 1;
  request.ignore_eos = true;
  scheduler->Submit(request, collector.listener());
  collector.Wait();
  result.total = Since(start);
  return result;
}

}  // namespace octavo::bench
