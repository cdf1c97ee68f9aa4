// The contract of fabric.h as tests, run over each backend: a backend's test file instantiates
// FabricContract with how to make a host of it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/fabric.h"

namespace aerie::comm {

// One backend; a new one for each test, so that hosts of a test see each other only.
struct Backend {
    std::function<std::unique_ptr<Fabric>(int node, uint32_t epoch)> make_host;
};

struct BackendParam {
    const char* name;
    Backend (*make)();
};

class FabricContract : public testing::TestWithParam<BackendParam> {
  protected:
    std::unique_ptr<Fabric> host(int node, uint32_t epoch = 1) {
        return backend_.make_host(node, epoch);
    }

  private:
    Backend backend_ = GetParam().make();
};

// The one-sided part, remote_memory_test.cc.
class OneSidedContract : public FabricContract {};

// Keeps what comes.
class Inbox : public Receiver {
  public:
    struct Mail {
        int node;
        uint32_t epoch;
        std::string header;
        std::vector<std::byte> bytes;  // as they were at delivered()
        const std::byte* payload;      // where they were
    };

    std::byte* accept(const Incoming& message) override;
    void delivered(const Incoming& message, const std::byte* payload) override;
    void failed(const Incoming& message) override;

    // Waits until `count` messages have come in all, at most 60 s.
    bool wait(size_t count);
    size_t count() const { return num_delivered; }
    std::vector<Mail> mail() const;
    Mail take();  // the newest

    std::atomic<bool> refuse{false};  // accept() returns nullptr
    std::atomic<bool> keep{true};     // false: only count
    std::atomic<size_t> num_accepted{0}, num_delivered{0}, num_failed{0}, num_refused{0};

  private:
    mutable std::mutex mutex_;
    std::vector<Mail> mail_;
    std::vector<std::unique_ptr<std::byte[]>> rooms_;
};

// Waits until it holds, at most limit_s; whether it does.
bool eventually(const std::function<bool()>& holds, double limit_s = 60);

std::vector<std::byte> pattern(size_t size, uint32_t seed);
bool same(const std::vector<std::byte>& a, const std::vector<std::byte>& b);
Message text(const std::string& header);
Message with_payload(const std::string& header, const std::vector<std::byte>& payload,
                     std::atomic<int>* pending, Payload kind = Payload::kOwned);

}  // namespace aerie::comm
