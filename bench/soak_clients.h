// The clients of `./run bench soak`: honest ones, ones that leave, rubbish, the attacks on HTTP servers that are known
// to have worked elsewhere, and ones that send a byte a second. Each counts what it was answered.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "bench/common/http_client.h"

namespace octavo::bench {

struct Tally {
  std::mutex mutex;
  std::map<int, int64_t> statuses;  // of honest requests and of rubbish
  std::map<std::string, std::map<int, int64_t>> attacks;
  std::vector<double> seconds;                 // of requests that were accepted, from sending to the last byte
  int64_t left = 0, cut_short = 0, never = 0;  // never: 429 without Retry-After

  void Add(int status);
  void AddAttack(const std::string& kind, int status);
};

// One request of 24 tokens, streamed or not, whose answer must be whole. Waits a little after a 429.
void AskHonestly(HttpClient& client, bool stream, Tally& tally);
// Reads a few pieces of a stream and leaves; or leaves before the request is whole.
void AskAndLeave(HttpClient& client, std::mt19937& random, Tally& tally);
// Bodies that are no acceptable requests; each must get a 4xx.
void SendRubbish(HttpClient& client, unsigned kind, Tally& tally);
constexpr unsigned kRubbishKinds = 9;
// What knocked other servers over: endless bodies, headers and chunks, two lengths. Refused or cut.
void Attack(HttpClient& client, unsigned kind, Tally& tally);
constexpr unsigned kAttackKinds = 7;

// `count` connections from 16 addresses that send a byte a second until `until`. Returns how many were open at the end.
int64_t SendSlowly(int port, int count, double until);

// `count` connections that announce 16 MiB, send all but the last byte and wait. Counts what they are answered.
void SendFatly(int port, int count, double until, Tally& tally);

}  // namespace octavo::bench
