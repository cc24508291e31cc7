#include "octavo/train/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace octavo::train {
namespace {

// A signal handler can reach nothing else: the one variable of the product that is not passed down.
std::atomic<int> received_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

struct sigaction old_interrupt, old_terminate;

void Handle(int signal) {
  if (received_signal.exchange(signal) != 0) _exit(128 + signal);
}

}  // namespace

SignalGuard::SignalGuard() {
  received_signal = 0;
  struct sigaction action = {};
  action.sa_handler = Handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_interrupt);
  sigaction(SIGTERM, &action, &old_terminate);
}

SignalGuard::~SignalGuard() {
  sigaction(SIGINT, &old_interrupt, nullptr);
  sigaction(SIGTERM, &old_terminate, nullptr);
}

int SignalGuard::received() const { return received_signal; }

}  // namespace octavo::train
