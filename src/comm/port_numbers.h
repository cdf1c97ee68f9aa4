// The ports that the ranks of the cluster listen on: each listener's number is unique in the
// cluster.
#pragma once

namespace aerie::comm {

constexpr int kHelloPort = 1;  // first message between two hosts

// Four kinds of listeners, interleaved, from 16 on.
constexpr int attention_port(int attention_rank) { return 16 + 4 * attention_rank; }
constexpr int expert_port(int expert_rank) { return 17 + 4 * expert_rank; }
constexpr int kv_port(bool decode_side, int replica) {
    return (decode_side ? 19 : 18) + 4 * replica;
}
constexpr bool is_kv_port(int port) { return port >= 16 && port % 4 >= 2; }

}  // namespace aerie::comm
