// The ports that the ranks of the cluster listen on: each listener's number is unique in the cluster.
#pragma once

namespace aerie::comm {

constexpr int attention_port(int attention_rank) { return 0x10000 + attention_rank; }
constexpr int expert_port(int expert_rank) { return 0x20000 + expert_rank; }
constexpr int kv_port(bool decode_side, int replica) {
    return (decode_side ? 0x40000 : 0x30000) + replica;
}
constexpr int kHelloPort = 1;  // first message between two hosts

}  // namespace aerie::comm
