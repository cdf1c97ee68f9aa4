// The socket that two hosts keep between them: over it they tell each other who they are and where
// their ends of the pair are, and its end is how each learns at once that the other has died. After
// the handshake nothing is sent over it. Private to comm/network.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace aerie::comm {

enum class Answer : uint16_t {
    kHello,      // from who connects
    kWelcome,    // connected
    kDuplicate,  // the other direction is being connected, or is
    kFenced,     // that life has been dropped, or a newer one is known
    kStranger,   // meant for another node or life
    kNoPair,     // the other side could not make its end of the pair
};

struct Greeting {
    Answer answer = Answer::kHello;
    int from_node = 0;
    uint32_t from_epoch = 0;
    int to_node = 0;
    uint32_t to_epoch = 0;
    std::string pair_address;  // with kHello and kWelcome
};

// A non-blocking TCP socket that carries one greeting each way. Movable, closes itself.
class Connection {
  public:
    Connection() = default;
    explicit Connection(int fd);
    Connection(Connection&& other) noexcept;
    Connection& operator=(Connection&& other) noexcept;
    ~Connection();

    // "host:port", as of Listener::address(). Connecting goes on while it is polled.
    static Result<Connection> connect_to(const std::string& address);

    int fd() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }

    void say(const Greeting& greeting);
    // Sends what say() left; whether all of it is out. The error tells why nobody is there.
    Result<bool> flush();
    // The peer's greeting once it is whole.
    Result<std::optional<Greeting>> hear();
    // The peer has closed it, or died.
    bool ended();
    // ended(), after a farewell.
    bool said_farewell() const { return farewell_; }
    // Tells the peer that this side is done with the pair.
    void end_own_side();
    // Waits until the peer has closed its side, at most limit_ms; whether it has.
    bool wait_for_end(int limit_ms);
    // Once heard: whether the peer's process runs under the same kernel, so that it may have memory
    // of this one mapped.
    bool same_machine() const { return same_machine_; }
    // Once heard: whether the peer's process can be watched, as it runs here and this process sees it.
    bool process_watched() const { return process_fd_ >= 0; }
    // Whether a watched process has ended, or does within limit_ms.
    bool process_ended(int limit_ms) const;

  private:
    int fd_ = -1;
    int process_fd_ = -1;  // of the peer's process
    bool same_machine_ = true;
    bool farewell_ = false;
    std::string out_;
    std::string in_;
};

class Listener {
  public:
    Listener() = default;
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    ~Listener();

    // host: name or number of an address of this machine. Ports: the first free one of
    // [first_port, last_port], or any where first_port is 0.
    Status open(const std::string& host, int first_port, int last_port);
    int fd() const { return fd_; }
    const std::string& address() const { return address_; }      // "host:port", numbers
    const std::string& interface() const { return interface_; }  // that has the address; or empty
    std::optional<Connection> accept();

  private:
    int fd_ = -1;
    std::string address_;
    std::string interface_;
};

}  // namespace aerie::comm
