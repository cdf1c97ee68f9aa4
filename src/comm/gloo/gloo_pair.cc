#include "comm/gloo/gloo_pair.h"

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <exception>

#include "base/log.h"
#include "base/thread.h"

namespace aerie::comm {
namespace {

// Gloo waits five times as long for a connection.
constexpr auto kConnectLimit = std::chrono::milliseconds(1000);
// An idle receiver waits for its next frame; a lost peer or the destructor ends the wait.
constexpr auto kForever = std::chrono::hours(10 * 365 * 24);
constexpr uint64_t kFrameTag = 0, kPayloadTag = 1;

}  // namespace

WithoutSigpipe::WithoutSigpipe() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before_);
}

// A signal that came meanwhile is taken, so that it does not come now.
WithoutSigpipe::~WithoutSigpipe() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    const timespec at_once{};
    if (!sigismember(&before_, SIGPIPE)) sigtimedwait(&pipe, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

Result<std::unique_ptr<Pair>> GlooPair::make(gloo::transport::Device& device, Ports& ports,
                                             int self, int peer, uint32_t peer_epoch) {
    std::unique_ptr<GlooPair> pair(new GlooPair(ports, self, peer, peer_epoch));
    RETURN_IF_ERROR(pair->open(device));
    return std::unique_ptr<Pair>(std::move(pair));
}

// The lower node is rank 0.
Status GlooPair::open(gloo::transport::Device& device) {
    event_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (event_fd_ < 0) return error("eventfd: {}", strerror(errno));
    const int rank = self_ < peer() ? 0 : 1;
    try {
        context_ = device.createContext(rank, 2);
        context_->setTimeout(kConnectLimit);
        link_ = context_->createPair(1 - rank).get();
        const std::vector<char> address = link_->address().bytes();
        address_.assign(address.begin(), address.end());
    } catch (const std::exception& failure) {
        return error("Gloo context for node-{}: {}", peer(), failure.what());
    }
    return {};
}

// Gloo connects while both sides wait for each other, so on a thread; sends queue until then.
Status GlooPair::connect(const std::string& peer_address) {
    if (peer_address.size() != address_.size())
        return error("Gloo address of node-{} has {} bytes, expected {}", peer(),
                     peer_address.size(), address_.size());
    const WithoutSigpipe quiet;
    receiver_ = std::thread([this, peer_address] { run_receiver(peer_address); });
    sender_ = std::thread([this] { run_sender(); });
    return {};
}

GlooPair::~GlooPair() {
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
        for (const auto& [buffer, sends] : waits_) {
            if (sends)
                buffer->abortWaitSend();
            else
                buffer->abortWaitRecv();
        }
    }
    changed_.notify_all();
    // Closing also ends the wait for a connection. From here on Gloo touches no buffer.
    try {
        if (link_ != nullptr) link_->close();
    } catch (const std::exception& failure) {
        log_debug("Gloo closing node-{}: {}", peer(), failure.what());
    }
    if (receiver_.joinable()) receiver_.join();
    if (sender_.joinable()) sender_.join();
    for (const Outgoing& out : queue_)
        if (out.pending != nullptr) out.pending->fetch_sub(1);
    context_.reset();
    if (event_fd_ >= 0) ::close(event_fd_);
}

void GlooPair::break_off(const std::string& why) {
    {
        std::lock_guard lock(mutex_);
        if (stopping_) return;
    }
    if (broken_.exchange(true)) return;
    log_debug("Gloo lost node-{}: {}", peer(), why);
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof(one));
}

bool GlooPair::progress() {
    uint64_t value;
    return read(event_fd_, &value, sizeof(value)) == sizeof(value);
}

Result<bool> GlooPair::send(int port, const Message& message) {
    if (broken_) return error("node-{} with epoch {} is lost", peer(), peer_epoch());
    Outgoing out{};
    out.frame.port = port;
    out.frame.header_bytes = static_cast<uint32_t>(message.header_bytes);
    out.frame.payload_bytes = message.payload_bytes;
    std::memcpy(out.frame.header, message.header, message.header_bytes);
    out.payload = message.payload;
    out.pending = message.pending;
    if (out.pending != nullptr) out.pending->fetch_add(1);
    {
        std::lock_guard lock(mutex_);
        queue_.push_back(out);
    }
    changed_.notify_all();
    return false;
}

bool GlooPair::wait(gloo::transport::UnboundBuffer& buffer, bool sends) {
    const auto entry = std::make_pair(&buffer, sends);
    {
        std::lock_guard lock(mutex_);
        if (stopping_) return false;
        waits_.insert(entry);
    }
    struct Leave {
        ~Leave() {
            std::lock_guard lock(pair.mutex_);
            pair.waits_.erase(entry);
        }
        GlooPair& pair;
        std::pair<gloo::transport::UnboundBuffer*, bool> entry;
    } leave{*this, entry};
    return sends ? buffer.waitSend(kForever) : buffer.waitRecv(kForever);
}

// The receiving thread.

void GlooPair::run_receiver(std::string peer_address) {
    set_thread_name("gloo-recv");
    try {
        link_->connect(std::vector<char>(peer_address.begin(), peer_address.end()));
        {
            std::lock_guard lock(mutex_);
            connected_ = true;
        }
        changed_.notify_all();
        receive();
    } catch (const std::exception& failure) {
        break_off(failure.what());
    }
}

void GlooPair::receive() {
    std::vector<std::byte> space(kFramesAhead * kFrameBytes);
    std::vector<BufferPtr> buffers;
    for (int i = 0; i < kFramesAhead; ++i) {
        buffers.push_back(
            context_->createUnboundBuffer(space.data() + i * kFrameBytes, kFrameBytes));
        link_->recv(buffers.back().get(), kFrameTag, 0, kFrameBytes);
    }
    for (int next = 0;; next = (next + 1) % kFramesAhead) {
        if (!wait(*buffers[next], false)) return;
        const std::byte* at = space.data() + next * kFrameBytes;
        Frame frame;
        std::memcpy(&frame, at, sizeof(frame));
        if (frame.header_bytes > kMaxHeaderBytes)
            return break_off(fmt::format("a header of {} bytes", frame.header_bytes));
        deliver(frame, at + sizeof(Frame));
        link_->recv(buffers[next].get(), kFrameTag, 0, kFrameBytes);
    }
}

void GlooPair::deliver(const Frame& frame, const std::byte* inline_payload) {
    const Incoming incoming{peer(), peer_epoch(), frame.header, frame.header_bytes,
                            frame.payload_bytes};
    const size_t size = frame.payload_bytes;
    if (size <= kInlineBytes)
        return deliver_in_process(ports_, frame.port, incoming, inline_payload, Payload::kOwned);
    Receiver* receiver = ports_.enter(frame.port);
    std::byte* room = receiver ? receiver->accept(incoming) : nullptr;
    if (receiver != nullptr && room == nullptr) ports_.leave(frame.port);
    if (room != nullptr) receiving_port_ = frame.port;
    std::vector<std::byte> nowhere(room ? 0 : size);  // refused: it comes all the same
    bool whole = false;
    std::exception_ptr lost;
    try {
        const auto payload = context_->createUnboundBuffer(room ? room : nowhere.data(), size);
        link_->recv(payload.get(), kPayloadTag, 0, size);
        whole = wait(*payload, false);
        // Closed before the room is given back, so that nothing is written to it any more.
        if (!whole) link_->close();
    } catch (const std::exception&) {
        lost = std::current_exception();
    }
    if (room != nullptr) {
        if (whole)
            receiver->delivered(incoming, room);
        else
            receiver->failed(incoming);
        receiving_port_ = -1;
        ports_.leave(frame.port);
    }
    if (lost) std::rethrow_exception(lost);
}

// The sending thread.

void GlooPair::run_sender() {
    set_thread_name("gloo-send");
    std::vector<std::byte> space(kFrameBytes);
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return connected_ || stopping_; });
        if (stopping_) return;
    }
    try {
        const auto frames = context_->createUnboundBuffer(space.data(), space.size());
        for (;;) {
            Outgoing out;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return !queue_.empty() || stopping_; });
                if (stopping_) return;
                out = queue_.front();  // counted down below, or with the queue
                queue_.pop_front();
            }
            struct Done {
                ~Done() {
                    if (pending != nullptr) pending->fetch_sub(1);
                }
                std::atomic<int>* pending;
            } done{out.pending};
            send_one(out, *frames, space.data());
        }
    } catch (const std::exception& failure) {
        break_off(failure.what());
    }
}

void GlooPair::send_one(const Outgoing& out, gloo::transport::UnboundBuffer& frames,
                        std::byte* space) {
    const size_t size = out.frame.payload_bytes;
    const size_t inlined = size <= kInlineBytes ? size : 0;
    std::memcpy(space, &out.frame, sizeof(Frame));
    if (inlined > 0) std::memcpy(space + sizeof(Frame), out.payload, inlined);
    link_->send(&frames, kFrameTag, 0, sizeof(Frame) + inlined);
    if (size > inlined) {
        // Gloo does not write to what it sends.
        const auto payload =
            context_->createUnboundBuffer(const_cast<std::byte*>(out.payload), size);
        link_->send(payload.get(), kPayloadTag, 0, size);
        if (!wait(*payload, true)) link_->close();  // before its owner has the memory back
    }
    (void)wait(frames, true);
}

}  // namespace aerie::comm
