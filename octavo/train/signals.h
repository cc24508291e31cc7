// Ctrl-C and SIGTERM while a run trains. The first one is a request: the trainer finishes its step, saves and ends. The
// second one ends the process at once; what was published stays whole. One guard at a time, made by the train verb.
#pragma once

namespace octavo::train {

class SignalGuard {
 public:
  SignalGuard();   // installs handlers for SIGINT and SIGTERM
  ~SignalGuard();  // puts the previous ones back
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  // 0, or the signal that came.
  int received() const;
};

}  // namespace octavo::train
