#include "octavo/train/signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <string_view>

namespace octavo::train {
namespace {

// A signal handler can reach nothing else: the only variables of the product that are not passed down.
std::atomic<int> received_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

constexpr int kHandled[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
struct sigaction old_actions[std::size(kHandled)];

// On a terminal the line takes the place of the bar and of the echoed ^C.
constexpr std::string_view kStopping = "\r\x1b[Kstopping after this step; Ctrl-C again stops now\n";
constexpr size_t kErase = 4;
std::atomic<int> notice_fd = -1;
std::atomic<bool> notice_on_terminal = false;

void AnswerInterrupt() {
  if (notice_fd < 0) return;
  const int kept = errno;
  const std::string_view text = notice_on_terminal ? kStopping : kStopping.substr(kErase);
  [[maybe_unused]] const ssize_t count = ::write(notice_fd, text.data(), text.size());
  errno = kept;
}

void Handle(int signal) {
  if (signal == SIGHUP) {
    int none = 0;
    received_signal.compare_exchange_strong(none, SIGHUP);
    return;
  }
  const int before = received_signal.exchange(signal);
  if (before != 0 && before != SIGHUP) _exit(128 + signal);
  if (signal == SIGINT) AnswerInterrupt();
}

}  // namespace

SignalGuard::SignalGuard(int notice) {
  received_signal = 0;
  notice_fd = notice;
  notice_on_terminal = notice >= 0 && ::isatty(notice) == 1;
  for (size_t i = 0; i < std::size(kHandled); ++i) {
    struct sigaction action = {};
    action.sa_handler = kHandled[i] == SIGPIPE ? SIG_IGN : Handle;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(kHandled[i], &action, &old_actions[i]);
    const bool ignored = old_actions[i].sa_handler == SIG_IGN;
    if (kHandled[i] == SIGHUP && ignored) sigaction(SIGHUP, &old_actions[i], nullptr);
  }
}

SignalGuard::~SignalGuard() {
  for (size_t i = 0; i < std::size(kHandled); ++i) sigaction(kHandled[i], &old_actions[i], nullptr);
}

int SignalGuard::received() const { return received_signal; }

}  // namespace octavo::train
