#include "config/key_row.h"

namespace aerie {

std::vector<ConfigKey> toml_rows() {
    return {
        row<FIELD(cluster.name)>("cluster", "name",
                                 {.flag = "", .meaning = "label in logs and metrics"}),
        row<FIELD(cluster.nodes)>("cluster", "nodes",
                                  {.flag = "nodes",
                                   .meaning = "nodes are called node-0, node-1, …",
                                   .min = 1,
                                   .max = 256,  // as comm/ connects
                                   .unit = "nodes"}),
        row<FIELD(cluster.gpus_per_node)>("cluster", "gpus_per_node",
                                          {.meaning = "cards a node; on CPUs, ranks a node",
                                           .min = 1,
                                           .max = 1024,
                                           .unit = "cards"}),
        row<FIELD(cluster.port_range)>(
            "cluster", "port_range",
            {.meaning = "\"a-b\": ports of every listener but HTTP", .unset = "ephemeral"}),
        row<FIELD(cluster.network)>("cluster", "network", {.meaning = "what links the nodes"}),
        row<FIELD(cluster.hosts)>("cluster", "hosts",
                                  {.flag = "",
                                   .meaning = "node name → address: the real machines",
                                   .unset = "all local"}),
        row<FIELD(parallel.attention_tp)>("parallel", "attention_tp",
                                          {.flag = "tp-size",
                                           .meaning = "equals tp_size",
                                           .min = 1,
                                           .max = 65536,
                                           .unit = "cards"}),
        row<FIELD(parallel.attention_cp)>("parallel", "attention_cp",
                                          {.flag = "cp-size",
                                           .meaning = "equals cp_size",
                                           .min = 1,
                                           .max = 65536,
                                           .unit = "cards"}),
        row<FIELD(parallel.expert_ep)>("parallel", "expert_ep",
                                       {.flag = "ep-size",
                                        .meaning = "equals ep_size",
                                        .min = 1,
                                        .max = 65536,
                                        .unit = "cards"}),
        row<FIELD(parallel.expert_dp)>(
            "parallel", "expert_dp",
            {.meaning = "copies of the experts", .min = 1, .max = 65536, .unit = "copies"}),
        row<FIELD(parallel.global_dp)>("parallel", "global_dp",
                                       {.flag = "dp-size",
                                        .meaning = "equals dp_size",
                                        .min = 1,
                                        .max = 65536,
                                        .unit = "replicas"}),
        row<FIELD(ae_separation.enabled)>(
            "ae_separation", "enabled",
            {.flag = "enable-ae-separation", .meaning = "equals enable_ae_separation"}),
        row<FIELD(ae_separation.prefill_nodes)>(
            "ae_separation", "prefill_nodes",
            {.meaning = "nodes of prefill attention", .unset = "none"}),
        row<FIELD(ae_separation.decode_nodes)>(
            "ae_separation", "decode_nodes",
            {.meaning = "nodes of the experts, and of decode attention unless "
                        "decode_attention_nodes is given",
             .unset = "none"}),
        row<FIELD(ae_separation.decode_attention_nodes)>(
            "ae_separation", "decode_attention_nodes",
            {.meaning =
                 "nodes of decode attention; the same as prefill_nodes: one unified role there",
             .unset = "none"}),
        row<FIELD(ae_separation.decode_tp)>("ae_separation", "decode_tp",
                                            {.meaning = "tp of decode attention",
                                             .min = 1,
                                             .max = 65536,
                                             .unit = "cards",
                                             .unset = "attention_tp"}),
        row<FIELD(ae_separation.decode_cp)>("ae_separation", "decode_cp",
                                            {.meaning = "cp of decode attention",
                                             .min = 1,
                                             .max = 65536,
                                             .unit = "cards",
                                             .unset = "attention_cp"}),
        row<FIELD(ae_separation.comm_backend)>(
            "ae_separation", "comm_backend",
            {.meaning = "between processes; auto: ucx"}),
        row<FIELD(ae_separation.kv_backend)>("ae_separation", "kv_backend",
                                             {.meaning = "KV transfer; auto: comm_backend"}),
        row<FIELD(ae_separation.kv_transfer)>(
            "ae_separation", "kv_transfer",
            {.meaning = "active: the sender pushes; passive: the receiver pulls"}),
        row<FIELD(ae_separation.microbatches)>(
            "ae_separation", "microbatches",
            {.meaning = "slices of a step in flight", .min = 1, .max = 3, .unset = "auto"}),
        row<FIELD(ae_separation.exchange_dtype)>(
            "ae_separation", "exchange_dtype",
            {.meaning = "what dispatch carries; auto: the compute type"}),
        row<FIELD(ae_separation.expert_rows_max)>(
            "ae_separation", "expert_rows_max",
            {.meaning = "rows that an expert rank computes together",
             .min = 1,
             .max = 1e6,
             .unit = "rows"}),
        row<FIELD(ae_separation.expert_prefill_wait_ms)>(
            "ae_separation", "expert_prefill_wait_ms",
            {.meaning = "longest time that prefill rows wait for decode rows",
             .max = 1e6,
             .unit = "ms"}),
        row<FIELD(ae_separation.exchange_timeout_s)>(
            "ae_separation", "exchange_timeout_s",
            {.meaning = "longest wait for a combine", .min = 0.01, .max = 1e6, .unit = "seconds"}),
        row<FIELD(ae_separation.kv_lease_s)>(
            "ae_separation", "kv_lease_s",
            {.meaning = "how long a pulled prompt's blocks are kept",
             .min = 0.01,
             .max = 1e6,
             .unit = "seconds"}),
        row<FIELD(model.path)>(
            "model", "path",
            {.flag = "model-path", .meaning = "equals model_path", .unset = "model_path"}),
        row<FIELD(model.dtype)>(
            "model", "dtype",
            {.meaning = "compute type of activations; FP8 weights stay FP8 on the card"}),
        row<FIELD(model.max_seq_len)>("model", "max_seq_len",
                                      {.flag = "context-length",
                                       .meaning = "longest sequence",
                                       .min = 1,
                                       .max = 1e9,
                                       .unit = "tokens",
                                       .unset = "from the model"}),
        row<FIELD(server.host)>("server", "host", {.meaning = "address of the HTTP server"}),
        row<FIELD(server.port)>(
            "server", "port",
            {.meaning = "port of the HTTP server; 0: any free one", .max = 65535}),
    };
}

}  // namespace aerie
