#include "comm/remote_access.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/ports.h"

namespace aerie::comm {
namespace {

constexpr double kRevokeLimitS = 2;
constexpr double kDroppedLimitS = 60;
// While the fabric still reads or writes memory of a transfer that is over.
constexpr auto kNap = std::chrono::microseconds(100);

}  // namespace

RemoteAccess::~RemoteAccess() {
    if (thread_.joinable()) thread_.join();
}

void RemoteAccess::stop() {
    {
        std::lock_guard lock(mutex_);
        for (auto& [id, transfer] : transfers_) end(*transfer, error("the host ends"));
        stop_ = true;
    }
    news_.notify_all();
    if (thread_.joinable()) thread_.join();
}

Status RemoteAccess::start(Access access, const RemoteRegion& region, std::span<const Piece> pieces,
                           TransferDone done) {
    std::call_once(started_, [this] { thread_ = std::thread([this] { run(); }); });
    auto owned = std::make_unique<Transfer>();
    Transfer& transfer = *owned;
    transfer.access = access;
    transfer.region = region;
    transfer.pieces = joined(pieces);
    if (transfer.pieces.empty()) {
        done({});
        return {};
    }
    transfer.done = std::move(done);
    Frame frame{};
    frame.kind = access == Access::kPut ? Kind::kPut : Kind::kGet;
    frame.to_epoch = region.epoch;
    frame.region = region.id;
    frame.num_pieces = static_cast<uint32_t>(transfer.pieces.size());
    {
        std::lock_guard lock(mutex_);
        frame.transfer = next_transfer_++;
        transfers_[frame.transfer] = std::move(owned);
    }
    // From here on peer_changed() ends it; a change before that shows here.
    Status sent;
    if (fabric_.peer_connection(region.node) != region.connection)
        sent = not_attached(region, fabric_.peer_epoch(region.node));
    for (; sent.ok() && !transfer.over && frame.piece < frame.num_pieces; ++frame.piece) {
        const Piece& piece = transfer.pieces[frame.piece];
        frame.offset = piece.offset;
        frame.bytes = piece.bytes;
        Message message{&frame, sizeof(frame)};
        if (access == Access::kPut) {
            message.payload = piece.local;
            message.payload_bytes = piece.bytes;
            message.pending = &transfer.pending;
        }
        sent = fabric_.send_over(region.connection, {region.node, kAccessPort}, message);
    }
    std::lock_guard lock(mutex_);
    transfer.sending = false;
    if (!sent.ok() && frame.piece == 0) {
        transfers_.erase(frame.transfer);
        return sent;
    }
    if (!sent.ok()) end(transfer, sent);
    if (transfer.over) news_.notify_all();
    return {};
}

void RemoteAccess::end(Transfer& transfer, Status result) {
    if (transfer.over) return;
    transfer.over = true;
    transfer.result = std::move(result);
    news_.notify_all();
}

void RemoteAccess::peer_changed(int node, uint32_t epoch) {
    std::lock_guard lock(mutex_);
    for (auto& [id, transfer] : transfers_) {
        const RemoteRegion& region = transfer->region;
        if (region.node == node && region.epoch != epoch)
            end(*transfer,
                error("node-{} with epoch {} is lost (region {})", node, region.epoch, region.id));
    }
    std::erase_if(arrivals_, [&](const auto& entry) {
        return std::get<0>(entry.first) == node && std::get<1>(entry.first) != epoch;
    });
}

void RemoteAccess::revoke(uint32_t region_id) {
    regions_.shut(region_id);
    if (regions_.drained(region_id, kRevokeLimitS)) return;
    std::vector<std::pair<int, uint32_t>> holders;
    {
        std::lock_guard lock(mutex_);
        for (const Write& write : writes_)
            if (write.region == region_id) holders.emplace_back(write.node, write.epoch);
        for (const auto& reply : replies_)
            if (reply->frame.region == region_id) holders.emplace_back(reply->node, reply->epoch);
    }
    for (const auto& [node, epoch] : holders) {
        log_warning("node-{} does not finish an access to region {}, which is revoked: dropped",
                    node, region_id);
        fabric_.drop_peer(node, epoch);
    }
    const bool idle = regions_.drained(region_id, kDroppedLimitS);
    CHECK(idle, "an access to region {} has not ended for {} s", region_id, kDroppedLimitS);
}

bool RemoteAccess::read(const Incoming& message, Frame& frame) {
    if (message.header_bytes != sizeof(frame)) return false;
    std::memcpy(&frame, message.header, sizeof(frame));
    return true;
}

RemoteAccess::Transfer* RemoteAccess::find(const Incoming& message, uint64_t id) {
    const auto found = transfers_.find(id);
    if (found == transfers_.end() || found->second->over) return nullptr;
    const RemoteRegion& region = found->second->region;
    return region.node == message.node && region.epoch == message.epoch ? found->second.get()
                                                                        : nullptr;
}

std::byte* RemoteAccess::accept(const Incoming& message) {
    Frame frame;
    if (!read(message, frame) || frame.to_epoch != fabric_.epoch()) return nullptr;
    if (frame.kind == Kind::kPut) {
        std::byte* room = regions_.enter(frame.region, frame.offset, message.payload_bytes);
        std::lock_guard lock(mutex_);
        if (room == nullptr)
            count_put(message, frame, true);
        else
            writes_.push_back({message.node, message.epoch, frame.region});
        return room;
    }
    if (frame.kind != Kind::kGetData) return nullptr;
    std::lock_guard lock(mutex_);
    Transfer* transfer = find(message, frame.transfer);
    if (transfer == nullptr || transfer->access != Access::kGet ||
        frame.piece >= transfer->pieces.size() ||
        transfer->pieces[frame.piece].bytes != message.payload_bytes)
        return nullptr;
    ++transfer->num_arriving;
    return transfer->pieces[frame.piece].local;
}

void RemoteAccess::delivered(const Incoming& message, const std::byte* payload) {
    Frame frame;
    if (!read(message, frame) || frame.to_epoch != fabric_.epoch()) return;
    if (frame.kind == Kind::kPut && payload != nullptr) regions_.leave(frame.region);
    std::lock_guard lock(mutex_);
    switch (frame.kind) {
        case Kind::kPut:
            if (payload != nullptr) {
                const auto mine = [&](const Write& write) {
                    return write.node == message.node && write.epoch == message.epoch &&
                           write.region == frame.region;
                };
                writes_.erase(std::find_if(writes_.begin(), writes_.end(), mine));
            }
            return count_put(message, frame, payload == nullptr);
        case Kind::kGet:
            return answer(message, frame, Kind::kGetData);
        case Kind::kPutDone:
        case Kind::kPutRefused:
        case Kind::kGetRefused:
            if (Transfer* transfer = find(message, frame.transfer))
                end(*transfer,
                    frame.kind == Kind::kPutDone ? Status() : region_revoked(transfer->region));
            return;
        case Kind::kGetData: {
            if (payload == nullptr) return;
            const auto found = transfers_.find(frame.transfer);
            if (found == transfers_.end()) return;
            --found->second->num_arriving;
            if (++found->second->num_arrived == found->second->pieces.size())
                end(*found->second, {});
            return;
        }
    }
}

void RemoteAccess::failed(const Incoming& message) {
    Frame frame;
    if (!read(message, frame)) return;
    if (frame.kind == Kind::kPut) regions_.leave(frame.region);
    std::lock_guard lock(mutex_);
    if (frame.kind == Kind::kPut) {
        const auto mine = [&](const Write& write) {
            return write.node == message.node && write.epoch == message.epoch &&
                   write.region == frame.region;
        };
        writes_.erase(std::find_if(writes_.begin(), writes_.end(), mine));
    } else if (const auto found = transfers_.find(frame.transfer); found != transfers_.end()) {
        --found->second->num_arriving;
    }
}

void RemoteAccess::count_put(const Incoming& message, const Frame& frame, bool refused) {
    const ArrivalKey key{message.node, message.epoch, frame.transfer};
    Arrival& arrival = arrivals_[key];
    arrival.refused |= refused;
    if (++arrival.num_pieces < frame.num_pieces) return;
    answer(message, frame, arrival.refused ? Kind::kPutRefused : Kind::kPutDone);
    arrivals_.erase(key);
}

void RemoteAccess::answer(const Incoming& to, const Frame& frame, Kind kind) {
    std::call_once(started_, [this] { thread_ = std::thread([this] { run(); }); });
    auto answer = std::make_unique<Answer>();
    answer->node = to.node;
    answer->epoch = to.epoch;
    answer->frame = frame;
    answer->frame.kind = kind;
    answer->frame.to_epoch = to.epoch;
    answers_.push_back(std::move(answer));
    news_.notify_all();
}

// The thread.

void RemoteAccess::run() {
    set_thread_name("remote-access");
    std::unique_lock lock(mutex_);
    for (;;) {
        std::deque<std::unique_ptr<Answer>> answers;
        answers.swap(answers_);
        auto quiet = take_quiet();
        const bool naps = reap_replies() || std::any_of(transfers_.begin(), transfers_.end(),
                                                        [](auto& t) { return t.second->over.load(); });
        if (answers.empty() && quiet.empty()) {
            if (naps) {
                news_.wait_for(lock, kNap);
            } else {
                if (stop_) return;
                news_.wait(lock);
            }
            continue;
        }
        lock.unlock();
        for (auto& transfer : quiet) transfer->done(std::move(transfer->result));
        for (auto& answer : answers) reply(std::move(answer));
        lock.lock();
    }
}

std::vector<std::unique_ptr<RemoteAccess::Transfer>> RemoteAccess::take_quiet() {
    std::vector<std::unique_ptr<Transfer>> quiet;
    for (auto it = transfers_.begin(); it != transfers_.end();) {
        if (it->second->quiet()) {
            quiet.push_back(std::move(it->second));
            it = transfers_.erase(it);
        } else {
            ++it;
        }
    }
    return quiet;
}

void RemoteAccess::reply(std::unique_ptr<Answer> owned) {
    Answer& answer = *owned;
    Message message{&answer.frame, sizeof(Frame)};
    if (answer.frame.kind == Kind::kGetData) {
        message.payload =
            regions_.enter(answer.frame.region, answer.frame.offset, answer.frame.bytes);
        if (message.payload == nullptr || answer.frame.bytes == 0) {
            answer.frame.kind = Kind::kGetRefused;
        } else {
            message.payload_bytes = answer.frame.bytes;
            message.pending = &answer.pending;
            std::lock_guard lock(mutex_);
            replies_.push_back(std::move(owned));  // until nothing reads the region
        }
    }
    // A newer life takes no answer that is not meant for it; a lost one needs none.
    if (fabric_.peer_epoch(answer.node) == answer.epoch)
        (void)fabric_.send({answer.node, kAccessPort}, message);
}

// Whether some are still being sent.
bool RemoteAccess::reap_replies() {
    std::erase_if(replies_, [&](const auto& reply) {
        if (reply->pending != 0) return false;
        regions_.leave(reply->frame.region);
        return true;
    });
    return !replies_.empty();
}

}  // namespace aerie::comm
