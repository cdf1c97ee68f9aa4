// StopSignals: SIGTERM and SIGINT as calls on an ordinary thread.
#pragma once

#include <functional>
#include <memory>

namespace aerie::control {

// From now on neither ends the process; both wait until there are StopSignals. Before the process
// has other threads, which inherit it.
void block_stop_signals();

// One for each process.
class StopSignals {
  public:
    // `listener` is called on a thread of its own at each signal, with how many have come. It may
    // not wait long: the next signal waits for it.
    explicit StopSignals(std::function<void(int count)> listener);
    ~StopSignals();

    int count() const;
    // Returns at once when a signal has come, else when the first comes.
    void wait() const;
    // As if a signal had come. Any thread.
    void raise();

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace aerie::control
