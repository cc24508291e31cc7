// What ends a run from outside. The first Ctrl-C, SIGTERM or SIGHUP (a lost connection) is a request: the trainer
// finishes its step, saves and ends. A second Ctrl-C or SIGTERM ends the process at once; what was published stays
// whole. A second SIGHUP does not: shell and kernel both send one. Readers that go away (SIGPIPE) do not end a run by
// themselves. One guard at a time, made by the train verb.
#pragma once

namespace octavo::train {

class SignalGuard {
 public:
  // Installs handlers for SIGINT, SIGTERM and SIGHUP, the last unless it is ignored already (nohup), and ignores
  // SIGPIPE.
  // The first Ctrl-C is answered with a line on `notice` at once, for a step may take minutes; -1: silently.
  explicit SignalGuard(int notice = -1);
  ~SignalGuard();  // puts the previous ones back
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  // 0, or the signal that came.
  int received() const;
};

}  // namespace octavo::train
