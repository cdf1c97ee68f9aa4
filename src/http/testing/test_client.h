// A raw-socket client for tests: it can be slow, rude and wrong in ways that a library cannot.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace aerie::http {

struct TestReply {
    int status = 0;
    std::string head, body;  // body: chunked framing taken off
    std::string header(std::string_view name) const {
        const size_t at = head.find("\r\n" + std::string(name) + ": ");
        if (at == std::string::npos) return {};
        const size_t begin = at + 4 + name.size();
        return head.substr(begin, head.find("\r\n", begin) - begin);
    }
};

class TestClient {
  public:
    explicit TestClient(int port, int receive_buffer = 0) {
        fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (receive_buffer > 0) {
            setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
        }
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<uint16_t>(port));
        inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
        connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    }
    ~TestClient() { close(); }
    TestClient(const TestClient&) = delete;
    TestClient& operator=(const TestClient&) = delete;

    bool connected() const { return connected_; }
    void close() {
        if (fd_ >= 0) ::close(fd_);
        fd_ = -1;
    }
    void end_sending() { shutdown(fd_, SHUT_WR); }

    bool send(std::string_view bytes) {
        while (!bytes.empty()) {
            const ssize_t size = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (size <= 0) return false;
            bytes.remove_prefix(static_cast<size_t>(size));
        }
        return true;
    }

    // Reads once, for at most `limit_s`. False: time is up, or the end (ended()).
    bool receive(double limit_s = 5) {
        pollfd item{.fd = fd_, .events = POLLIN, .revents = 0};
        if (poll(&item, 1, static_cast<int>(limit_s * 1000)) <= 0) return false;
        char bytes[65536];
        const ssize_t size = recv(fd_, bytes, sizeof bytes, 0);
        if (size <= 0) ended_ = true;
        if (size > 0) received_.append(bytes, static_cast<size_t>(size));
        return size > 0;
    }
    bool ended() const { return ended_; }
    std::string& received() { return received_; }  // and not yet part of a reply

    bool receive_until(std::string_view text, double limit_s = 5) {
        const TimePoint deadline = after(limit_s);
        while (received_.find(text) == std::string::npos) {
            if (Clock::now() > deadline || !receive(seconds_between(Clock::now(), deadline))) {
                return false;
            }
        }
        return true;
    }
    // The rest, until the server closes.
    bool receive_end(double limit_s = 5) {
        const TimePoint deadline = after(limit_s);
        while (receive(std::max(0.0, seconds_between(Clock::now(), deadline)))) {
        }
        return ended_;
    }

    // One reply off the stream; status 0 where none came. `is_head`: it has no body.
    TestReply reply(bool is_head = false) {
        TestReply reply;
        if (!receive_until("\r\n\r\n")) return reply;
        reply.head = take(received_.find("\r\n\r\n") + 4);
        reply.status = std::atoi(reply.head.c_str() + 9);
        if (is_head) return reply;
        if (reply.header("Transfer-Encoding") == "chunked") {
            for (;;) {
                if (!receive_until("\r\n")) return {};
                const std::string line = take(received_.find("\r\n") + 2);
                const size_t size = std::strtoul(line.c_str(), nullptr, 16);
                while (received_.size() < size + 2 && receive()) {
                }
                if (received_.size() < size + 2) return {};
                reply.body += take(size + 2).substr(0, size);
                if (size == 0) return reply;
            }
        }
        const size_t size = std::strtoul(reply.header("Content-Length").c_str(), nullptr, 10);
        while (received_.size() < size && receive()) {
        }
        reply.body = take(std::min(size, received_.size()));
        return reply;
    }

    TestReply get(std::string_view path, std::string_view headers = "") {
        send("GET " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n" + std::string(headers) +
             "\r\n");
        return reply();
    }
    TestReply post(std::string_view path, std::string_view body, std::string_view headers = "") {
        send(post_text(path, body, headers));
        return reply();
    }
    static std::string post_text(std::string_view path, std::string_view body,
                                 std::string_view headers = "") {
        return "POST " + std::string(path) +
               " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n" + std::string(headers) + "\r\n" +
               std::string(body);
    }

  private:
    std::string take(size_t size) {
        std::string text = received_.substr(0, size);
        received_.erase(0, size);
        return text;
    }

    int fd_ = -1;
    bool connected_ = false, ended_ = false;
    std::string received_;
};

}  // namespace aerie::http
