#include <grpcpp/grpcpp.h>

#include <mutex>
#include <thread>

#include "base/thread.h"
#include "control/grpc_transport.h"
#include "control/queue.h"
#include "proto/control.grpc.pb.h"

namespace aerie::control {
namespace {

constexpr double kForever = 3600;  // seconds

class GrpcUplink final : public Uplink {
  public:
    explicit GrpcUplink(const std::shared_ptr<grpc::Channel>& channel)
        : stub_(proto::Control::NewStub(channel)),
          stream_(stub_->Session(&context_)),
          writer_([this] { write(); }),
          reader_([this] { read(); }) {}

    ~GrpcUplink() override {
        close();
        reader_.join();
        stream_->Finish();
    }

    void send(proto::FromHost message) override { to_hub_.push(std::move(message)); }

    std::optional<proto::ToHost> receive(TimePoint deadline) override {
        return from_hub_.pop(deadline);
    }

    bool ended() const override { return from_hub_.finished(); }

    void close() override {
        if (closed_.exchange(true)) return;
        to_hub_.close();
        written_.pop(after(1));
        context_.TryCancel();
        writer_.join();
    }

  private:
    void write() {
        set_thread_name("to-hub");
        while (!to_hub_.finished()) {
            const auto message = to_hub_.pop(after(kForever));
            if (message && !stream_->Write(*message)) break;
        }
        stream_->WritesDone();
        written_.close();
    }

    void read() {
        set_thread_name("from-hub");
        for (proto::ToHost message; stream_->Read(&message);) {
            from_hub_.push(std::move(message));
            message.Clear();
        }
        from_hub_.close();
        to_hub_.close();
    }

    grpc::ClientContext context_;
    std::unique_ptr<proto::Control::Stub> stub_;
    std::unique_ptr<grpc::ClientReaderWriter<proto::FromHost, proto::ToHost>> stream_;
    Queue<proto::FromHost> to_hub_;
    Queue<proto::ToHost> from_hub_;
    Queue<int> written_;  // closed once the writer is done
    std::atomic<bool> closed_{false};
    std::thread writer_, reader_;
};

}  // namespace

Result<std::unique_ptr<Uplink>> connect_to_hub(const std::string& address, double limit_s) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
    const auto channel =
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    const auto deadline = std::chrono::system_clock::now() +
                          std::chrono::milliseconds(static_cast<int64_t>(limit_s * 1000));
    if (!channel->WaitForConnected(deadline)) {
        return error("no launcher answers at {} after {:g} s: is node-0's `aerie serve` running?",
                     address, limit_s);
    }
    return std::unique_ptr<Uplink>(std::make_unique<GrpcUplink>(channel));
}

}  // namespace aerie::control
