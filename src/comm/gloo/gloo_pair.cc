#include "comm/gloo/gloo_pair.h"

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
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
    payloads_ = std::thread([this] { run_payloads(); });
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
    if (payloads_.joinable()) payloads_.join();
    if (sender_.joinable()) sender_.join();
    for (const auto& arriving : arriving_) end(*arriving, false);
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
        take(frame, at + sizeof(Frame));
        link_->recv(buffers[next].get(), kFrameTag, 0, kFrameBytes);
    }
}

// The payload is asked for at once and waited for by another thread, so that the next frame is
// read.
void GlooPair::take(const Frame& frame, const std::byte* inline_payload) {
    const Incoming incoming{peer(), peer_epoch(), frame.header, frame.header_bytes,
                            frame.payload_bytes};
    const size_t size = frame.payload_bytes;
    if (size <= kInlineBytes)
        return deliver_in_process(ports_, frame.port, incoming, inline_payload, Payload::kOwned);
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return arriving_.size() < kPayloadsAhead || stopping_; });
        if (stopping_) return;
    }
    auto owned = std::make_unique<Arriving>();
    Arriving& arriving = *owned;
    arriving.frame = frame;
    arriving.receiver = ports_.enter(frame.port);
    arriving.room = arriving.receiver ? arriving.receiver->accept(incoming) : nullptr;
    if (arriving.room == nullptr) {
        if (arriving.receiver != nullptr) ports_.leave(frame.port);
        arriving.receiver = nullptr;
        arriving.nowhere.resize(size);
        arriving.room = arriving.nowhere.data();
    }
    {
        std::lock_guard lock(mutex_);
        arriving_.push_back(std::move(owned));  // whatever happens, it is ended from there
    }
    auto buffer = context_->createUnboundBuffer(arriving.room, size);
    link_->recv(buffer.get(), kPayloadTag, 0, size);
    {
        std::lock_guard lock(mutex_);
        arriving.buffer = std::move(buffer);
    }
    changed_.notify_all();
}

void GlooPair::end(const Arriving& arriving, bool whole) {
    if (arriving.receiver == nullptr) return;
    const Frame& frame = arriving.frame;
    const Incoming incoming{peer(), peer_epoch(), frame.header, frame.header_bytes,
                            frame.payload_bytes};
    if (whole)
        arriving.receiver->delivered(incoming, arriving.room);
    else
        arriving.receiver->failed(incoming);
    ports_.leave(frame.port);
}

bool GlooPair::receives_for(int port) const {
    std::lock_guard lock(mutex_);
    return std::any_of(arriving_.begin(), arriving_.end(), [port](const auto& arriving) {
        return arriving->receiver != nullptr && arriving->frame.port == port;
    });
}

// The payloads' thread. What is left when it ends is failed by the destructor, after Gloo has let
// go of it.
void GlooPair::run_payloads() {
    set_thread_name("gloo-payloads");
    try {
        for (;;) {
            Arriving* first = nullptr;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] {
                    return stopping_ || (!arriving_.empty() && arriving_.front()->buffer);
                });
                if (stopping_) return;
                first = arriving_.front().get();
            }
            if (!wait(*first->buffer, false)) return;
            std::unique_ptr<Arriving> whole;
            {
                std::lock_guard lock(mutex_);
                whole = std::move(arriving_.front());
                arriving_.pop_front();
            }
            changed_.notify_all();
            end(*whole, true);
        }
    } catch (const std::exception& failure) {
        break_off(failure.what());
    }
}

// The sending thread.

void GlooPair::run_sender() {
    set_thread_name("gloo-send");
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return connected_ || stopping_; });
        if (stopping_) return;
    }
    try {
        send_queue();
    } catch (const std::exception& failure) {
        break_off(failure.what());
    }
    // Before the owners have their memory back.
    try {
        link_->close();
    } catch (const std::exception& failure) {
        log_debug("Gloo closing node-{}: {}", peer(), failure.what());
    }
    for (const Sending& sending : sending_)
        if (sending.pending != nullptr) sending.pending->fetch_sub(1);
    sending_.clear();
}

void GlooPair::send_queue() {
    std::vector<std::byte> space(kFrameBytes);
    const auto frames = context_->createUnboundBuffer(space.data(), space.size());
    for (;;) {
        bool idle;
        Outgoing out;
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return !queue_.empty() || !sending_.empty() || stopping_; });
            if (stopping_) return;
            idle = queue_.empty() || sending_.size() >= kPayloadsAhead;
            if (!idle) {
                out = queue_.front();
                queue_.pop_front();
            }
        }
        if (!(idle ? end_oldest_send() : send_frame(out, *frames, space.data()))) return;
    }
}

bool GlooPair::end_oldest_send() {
    if (!wait(*sending_.front().buffer, true)) return false;
    if (sending_.front().pending != nullptr) sending_.front().pending->fetch_sub(1);
    sending_.pop_front();
    return true;
}

bool GlooPair::send_frame(const Outgoing& out, gloo::transport::UnboundBuffer& frames,
                          std::byte* space) {
    const size_t size = out.frame.payload_bytes;
    const bool follows = size > kInlineBytes;
    std::memcpy(space, &out.frame, sizeof(Frame));
    if (!follows && size > 0) std::memcpy(space + sizeof(Frame), out.payload, size);
    sending_.push_back({nullptr, out.pending});  // counted down from there
    if (follows) {
        // Gloo does not write to what it sends.
        sending_.back().buffer =
            context_->createUnboundBuffer(const_cast<std::byte*>(out.payload), size);
        link_->send(sending_.back().buffer.get(), kPayloadTag, 0, size);
    }
    link_->send(&frames, kFrameTag, 0, sizeof(Frame) + (follows ? 0 : size));
    if (!follows) {
        if (out.pending != nullptr) out.pending->fetch_sub(1);
        sending_.pop_back();
    }
    return wait(frames, true);
}

}  // namespace aerie::comm
