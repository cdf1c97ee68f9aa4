#include "http/server.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "base/log.h"
#include "base/thread.h"
#include "http/connection.h"
#include "http/response_head.h"

namespace aerie::http {
namespace asio = boost::asio;
using tcp = asio::ip::tcp;

struct Server::Impl {
    explicit Impl(int num_threads) : io(num_threads), acceptor(io), accept_pause(io) {}

    Status listen();
    asio::awaitable<void> accept_loop();
    void refuse_connection(tcp::socket socket);
    // Calls `what` for each connection; waits until none is left, at most until `deadline`.
    bool wait_for_connections(void (Connection::*what)(), TimePoint deadline);
    void stop(double limit_s);

    ConnectionContext context;
    asio::io_context io;
    tcp::acceptor acceptor;
    asio::steady_timer accept_pause;
    std::vector<std::thread> threads;

    int port = 0;

    std::mutex mutex;
    std::condition_variable ended;
    // Shared with their coroutines.
    std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;
    bool stopped = false;
};

Status Server::Impl::listen() {
    const ServerOptions& options = context.options;
    boost::system::error_code failed;
    tcp::resolver resolver(io);
    const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                        tcp::resolver::passive, failed);
    if (failed) return error("host {}: {}", options.host, failed.message());
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor.open(endpoint.protocol(), failed);
    if (!failed) acceptor.set_option(asio::socket_base::reuse_address(true), failed);
    if (!failed) acceptor.bind(endpoint, failed);
    if (!failed) acceptor.listen(asio::socket_base::max_listen_connections, failed);
    if (failed) {
        return error("cannot listen on {}:{}: {}", options.host, options.port, failed.message());
    }
    port = acceptor.local_endpoint(failed).port();
    return {};
}

asio::awaitable<void> Server::Impl::accept_loop() {
    const auto no_throw = asio::as_tuple(asio::use_awaitable);
    while (acceptor.is_open()) {
        auto [failed, socket] = co_await acceptor.async_accept(asio::make_strand(io), no_throw);
        if (!acceptor.is_open()) break;
        if (failed) {
            // Mostly too many open files: it passes when connections end.
            log_warning("cannot accept a connection: {}", failed.message());
            accept_pause.expires_after(std::chrono::milliseconds(100));
            co_await accept_pause.async_wait(no_throw);
            continue;
        }
        boost::system::error_code ignored;
        socket.set_option(tcp::no_delay(true), ignored);
        std::unique_lock lock(mutex);
        if (static_cast<int>(connections.size()) >= context.options.max_connections) {
            lock.unlock();
            refuse_connection(std::move(socket));
            continue;
        }
        auto connection = std::make_shared<Connection>(std::move(socket), context);
        connections[connection.get()] = connection;
        connection->start();
    }
}

void Server::Impl::refuse_connection(tcp::socket socket) {
    if (context.tls) return;  // a handshake would take longer than it may here
    const ErrorBody body = context.error_format(
        503, "", fmt::format("too many connections, at most {} are served (http_max_connections)",
                             context.options.max_connections));
    ResponseHead head;
    head.status = 503;
    head.content_type = body.content_type;
    head.content_length = body.body.size();
    head.keep_alive = false;
    boost::system::error_code ignored;
    socket.non_blocking(true, ignored);
    asio::write(socket, asio::buffer(format_head(head) + body.body), ignored);
    socket.shutdown(tcp::socket::shutdown_send, ignored);
}

bool Server::Impl::wait_for_connections(void (Connection::*what)(), TimePoint deadline) {
    std::unique_lock lock(mutex);
    for (auto& [key, connection] : connections) ((*connection).*what)();
    return ended.wait_until(lock, deadline, [&] { return connections.empty(); });
}

void Server::Impl::stop(double limit_s) {
    {
        std::lock_guard lock(mutex);
        if (std::exchange(stopped, true)) return;
    }
    context.draining = true;
    asio::post(io, [this] {
        boost::system::error_code ignored;
        acceptor.close(ignored);
        accept_pause.cancel();
    });
    if (!wait_for_connections(&Connection::drain, after(limit_s))) {
        wait_for_connections(&Connection::cut, after(2));
    }
    io.stop();
    for (std::thread& thread : threads) thread.join();
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { stop(0); }

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options, Handler handler,
                                              ErrorFormat error_format) {
    auto impl = std::make_unique<Impl>(options.io_threads);
    Impl& server = *impl;
    server.context.options = options;
    if (!options.tls.certfile.empty()) {
        auto tls = TlsContext::load(options.tls);
        if (!tls) return tls.error();
        server.context.tls = *std::move(tls);
    }
    server.context.handler = std::move(handler);
    server.context.error_format = std::move(error_format);
    server.context.on_end = [&server](Connection* connection) {
        std::lock_guard lock(server.mutex);
        server.connections.erase(connection);
        if (server.connections.empty()) server.ended.notify_all();
    };
    if (auto status = server.listen(); !status) return status.error();
    asio::co_spawn(server.io, [&server] { return server.accept_loop(); }, asio::detached);
    for (int i = 0; i < options.io_threads; ++i) {
        server.threads.emplace_back([&server, i] {
            set_thread_name(fmt::format("http-{}", i));
            server.io.run();
        });
    }
    return std::unique_ptr<Server>(new Server(std::move(impl)));
}

int Server::port() const { return impl_->port; }

int Server::num_connections() const {
    std::lock_guard lock(impl_->mutex);
    return static_cast<int>(impl_->connections.size());
}

void Server::stop(double limit_s) { impl_->stop(limit_s); }

}  // namespace aerie::http
