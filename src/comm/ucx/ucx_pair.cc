#include "comm/ucx/ucx_pair.h"

#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

namespace aerie::comm {
namespace {

constexpr unsigned kMessageId = 0;
constexpr double kCloseLimitS = 0.2;

}  // namespace

Result<std::unique_ptr<Pair>> UcxPair::make(const Ucx& ucx, ucp_context_h context, Ports& ports,
                                            int peer, uint32_t peer_epoch) {
    std::unique_ptr<UcxPair> pair(new UcxPair(ucx, ports, peer, peer_epoch));
    RETURN_IF_ERROR(pair->open(context));
    return std::unique_ptr<Pair>(std::move(pair));
}

Status UcxPair::open(ucp_context_h context) {
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    RETURN_IF_UCX_ERROR(ucx_, ucx_.ucp_worker_create(context, &params, &worker_),
                        "UCX worker for node-{}", peer());

    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessageId;
    handler.cb = on_message;
    handler.arg = this;
    RETURN_IF_UCX_ERROR(ucx_, ucx_.ucp_worker_set_am_recv_handler(worker_, &handler),
                        "UCX handler for node-{}", peer());
    RETURN_IF_UCX_ERROR(ucx_, ucx_.ucp_worker_get_efd(worker_, &event_fd_),
                        "UCX event descriptor for node-{}", peer());
    ucp_address_t* address = nullptr;
    size_t length = 0;
    RETURN_IF_UCX_ERROR(ucx_, ucx_.ucp_worker_get_address(worker_, &address, &length),
                        "UCX address for node-{}", peer());
    address_.assign(reinterpret_cast<const char*>(address), length);
    ucx_.ucp_worker_release_address(worker_, address);
    return {};
}

Status UcxPair::connect(const std::string& peer_address) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(peer_address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void* self, ucp_ep_h, ucs_status_t status) {
        auto* pair = static_cast<UcxPair*>(self);
        pair->broken_ = true;
        log_debug("UCX lost node-{}: {}", pair->peer(), pair->ucx_.ucs_status_string(status));
    };
    params.err_handler.arg = this;
    RETURN_IF_UCX_ERROR(ucx_, ucx_.ucp_ep_create(worker_, &params, &endpoint_),
                        "UCX endpoint to node-{}", peer());
    return {};
}

UcxPair::~UcxPair() {
    if (worker_ == nullptr) return;
    for (ucp_rkey_h key : keys_) ucx_.ucp_rkey_destroy(key);
    if (endpoint_ != nullptr) {
        ucp_request_param_t force{};
        force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        force.flags = UCP_EP_CLOSE_FLAG_FORCE;
        void* request = ucx_.ucp_ep_close_nbx(endpoint_, &force);
        if (UCS_PTR_IS_PTR(request)) {
            const TimePoint deadline = after(kCloseLimitS);
            while (ucx_.ucp_request_check_status(request) == UCS_INPROGRESS &&
                   Clock::now() < deadline)
                ucx_.ucp_worker_progress(worker_);
            ucx_.ucp_request_free(request);
        }
        // Lanes are discarded, and their operations ended, by calls of progress.
        for (int i = 0; i < 1000 && !active_.empty(); ++i) ucx_.ucp_worker_progress(worker_);
    }
    ucx_.ucp_worker_destroy(worker_);
    // What UCX has not ended cannot be touched by it any more.
    while (!active_.empty()) end(active_.back(), false);
}

UcxPair::Operation* UcxPair::begin() {
    if (idle_.empty()) {
        operations_.push_back(std::make_unique<Operation>());
        idle_.push_back(operations_.back().get());
    }
    Operation* operation = idle_.back();
    idle_.pop_back();
    operation->pair = this;
    operation->place = active_.size();
    operation->pending = nullptr;
    operation->receiver = nullptr;
    active_.push_back(operation);
    return operation;
}

void UcxPair::end(Operation* operation, bool arrived) {
    active_.back()->place = operation->place;
    active_[operation->place] = active_.back();
    active_.pop_back();
    idle_.push_back(operation);
    if (operation->receiver != nullptr) {
        if (arrived)
            operation->receiver->delivered(operation->incoming, operation->room);
        else
            operation->receiver->failed(operation->incoming);
        ports_.leave(operation->port);
    } else if (operation->pending != nullptr) {
        operation->pending->fetch_sub(1);  // the payload's owner may be gone from here on
    }
}

Result<bool> UcxPair::send(int port, const Message& message) {
    Operation* operation = begin();
    auto& header = operation->header;
    header.wire = {port, static_cast<uint32_t>(message.header_bytes), message.payload_bytes};
    std::memcpy(header.header, message.header, message.header_bytes);

    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    param.flags =
        message.payload_bytes <= kEagerBytes ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV;
    param.cb.send = [](void* request, ucs_status_t, void* user_data) {
        auto* operation = static_cast<Operation*>(user_data);
        const Ucx& ucx = operation->pair->ucx_;
        operation->pair->end(operation, true);
        ucx.ucp_request_free(request);
    };
    param.user_data = operation;
    // Counted before UCX can end it, and only for it: a send that is done at once leaves it alone.
    if (message.pending != nullptr) message.pending->fetch_add(1);
    operation->pending = message.pending;
    const void* request = ucx_.ucp_am_send_nbx(endpoint_, kMessageId, &header,
                                               sizeof(WireHeader) + message.header_bytes,
                                               message.payload, message.payload_bytes, &param);
    if (UCS_PTR_IS_PTR(request)) return false;
    end(operation, true);
    if (UCS_PTR_IS_ERR(request)) {
        broken_ = true;
        return error("node-{} with epoch {} is lost: {}", peer(), peer_epoch(),
                     ucx_.ucs_status_string(UCS_PTR_STATUS(request)));
    }
    return true;
}

// extra: the address in the owner's process, then UCX's packed key.
std::byte* UcxPair::map(const KeyContent& key) {
    uint64_t address;
    if (key.extra.size() <= sizeof(address)) return nullptr;
    std::memcpy(&address, key.extra.data(), sizeof(address));
    ucp_rkey_h rkey = nullptr;
    void* here = nullptr;
    if (ucx_.ucp_ep_rkey_unpack(endpoint_, key.extra.data() + sizeof(address), &rkey) != UCS_OK)
        return nullptr;
    if (ucx_.ucp_rkey_ptr(rkey, address, &here) != UCS_OK) {
        ucx_.ucp_rkey_destroy(rkey);
        return nullptr;
    }
    keys_.push_back(rkey);
    return static_cast<std::byte*>(here);
}

bool UcxPair::progress() { return ucx_.ucp_worker_progress(worker_) != 0; }

bool UcxPair::arm() { return ucx_.ucp_worker_arm(worker_) == UCS_OK; }

bool UcxPair::receives_for(int port) const {
    for (const Operation* operation : active_)
        if (operation->receiver != nullptr && operation->port == port) return true;
    return false;
}

ucs_status_t UcxPair::on_message(void* self, const void* header, size_t header_bytes, void* data,
                                 size_t length, const ucp_am_recv_param_t* param) {
    WireHeader wire;
    if (header_bytes < sizeof(wire)) return UCS_OK;
    std::memcpy(&wire, header, sizeof(wire));  // UCX does not align it
    const size_t rest = header_bytes - sizeof(wire);
    if (wire.header_bytes != rest || rest > kMaxHeaderBytes || wire.payload_bytes != length)
        return UCS_OK;
    return static_cast<UcxPair*>(self)->message(
        wire, static_cast<const std::byte*>(header) + sizeof(wire), data, length,
        param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
}

// UCS_OK for an undelivered rendezvous tells the sender that it is done with.
ucs_status_t UcxPair::message(const WireHeader& wire, const std::byte* header, void* data,
                              size_t length, bool rendezvous) {
    Receiver* receiver = ports_.enter(wire.port);
    if (receiver == nullptr) return UCS_OK;
    const Incoming incoming{peer(), peer_epoch(), header, wire.header_bytes, length};
    if (length == 0) {
        receiver->delivered(incoming, nullptr);
    } else if (std::byte* room = receiver->accept(incoming)) {
        if (rendezvous) {
            receive(receiver, wire.port, incoming, data, room);
            return UCS_OK;
        }
        std::memcpy(room, data, length);
        receiver->delivered(incoming, room);
    }
    ports_.leave(wire.port);
    return UCS_OK;
}

void UcxPair::receive(Receiver* receiver, int port, const Incoming& incoming, void* descriptor,
                      std::byte* room) {
    Operation* operation = begin();
    operation->receiver = receiver;
    operation->port = port;
    operation->incoming = incoming;
    std::memcpy(operation->header.header, incoming.header, incoming.header_bytes);
    operation->incoming.header = operation->header.header;
    operation->room = room;

    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* user_data) {
        auto* operation = static_cast<Operation*>(user_data);
        const Ucx& ucx = operation->pair->ucx_;
        operation->pair->end(operation, status == UCS_OK);
        ucx.ucp_request_free(request);
    };
    param.user_data = operation;
    const void* request =
        ucx_.ucp_am_recv_data_nbx(worker_, descriptor, room, incoming.payload_bytes, &param);
    if (!UCS_PTR_IS_PTR(request)) end(operation, request == nullptr);
}

}  // namespace aerie::comm
