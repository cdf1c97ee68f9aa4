#include <grpcpp/grpcpp.h>

#include <mutex>
#include <thread>

#include "base/thread.h"
#include "control/grpc_transport.h"
#include "control/queue.h"
#include "proto/control.grpc.pb.h"

namespace aerie::control {
namespace {

using Stream = grpc::ServerReaderWriter<proto::ToHost, proto::FromHost>;

class GrpcDownlink final : public Downlink {
  public:
    explicit GrpcDownlink(grpc::ServerContext& context) : context_(&context) {}

    void send(const proto::ToHost& message) override { queue_.push(message); }

    void cancel() override {
        std::lock_guard lock(mutex_);
        if (context_ != nullptr) context_->TryCancel();
    }

    // The writer's thread: until close(), or until the host does not take any more.
    void write_to(Stream& stream) {
        set_thread_name("to-host");
        while (!queue_.finished()) {
            const auto message = queue_.pop(after(kForever));
            if (message && !stream.Write(*message)) return;
        }
    }

    // The session is over; the context is gone after this.
    void close() {
        queue_.close();
        std::lock_guard lock(mutex_);
        context_->TryCancel();  // a Write() that waits for the host returns
        context_ = nullptr;
    }

  private:
    static constexpr double kForever = 3600;  // seconds

    Queue<proto::ToHost> queue_;
    std::mutex mutex_;
    grpc::ServerContext* context_;  // null after the session's end
};

class ControlService final : public proto::Control::Service {
  public:
    explicit ControlService(SessionSink& hub) : hub_(hub) {}

    grpc::Status Session(grpc::ServerContext* context, Stream* stream) override {
        const auto downlink = std::make_shared<GrpcDownlink>(*context);  // shared with the hub
        const uint64_t session = hub_.opened(downlink);
        std::thread writer([&] { downlink->write_to(*stream); });
        for (proto::FromHost message; stream->Read(&message);) {
            hub_.received(session, std::move(message));
            message.Clear();
        }
        downlink->close();
        writer.join();
        hub_.closed(session, "its connection has ended");
        return grpc::Status::OK;
    }

  private:
    SessionSink& hub_;
};

class GrpcServer final : public ControlServer {
  public:
    explicit GrpcServer(SessionSink& hub) : service_(hub) {}

    ~GrpcServer() override {
        // At the deadline all sessions are cancelled; each handler then returns.
        if (server_) server_->Shutdown(std::chrono::system_clock::now());
    }

    bool start(const std::string& address) {
        grpc::ServerBuilder builder;
        builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
        builder.SetMaxReceiveMessageSize(-1);
        builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a taken port is an error
        // A machine that vanishes without closing its connections.
        builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
        builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
        builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
        builder.RegisterService(&service_);
        server_ = builder.BuildAndStart();
        return server_ != nullptr && port_ != 0;
    }

    int port() const override { return port_; }

  private:
    ControlService service_;
    int port_ = 0;
    std::unique_ptr<grpc::Server> server_;
};

}  // namespace

Result<std::unique_ptr<ControlServer>> listen_for_hosts(const std::string& address,
                                                        SessionSink& hub) {
    auto server = std::make_unique<GrpcServer>(hub);
    if (!server->start(address)) {
        return error("cannot listen for hosts at {}: expected an address of this machine and a free "
                     "port",
                     address);
    }
    return std::unique_ptr<ControlServer>(std::move(server));
}

}  // namespace aerie::control
