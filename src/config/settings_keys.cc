#include "config/key_row.h"

namespace aerie {

std::vector<ConfigKey> settings_rows() {
    std::vector<ConfigKey> rows = {
        row<FIELD(settings.model_path)>(
            "", "model_path",
            {.flag = "model-path",
             .meaning = "folder with config.json, safetensors, tokenizer.json",
             .unset = "[model] path"}),
        row<FIELD(settings.tokenizer_path)>(
            "", "tokenizer_path", {.meaning = "folder with tokenizer.json", .unset = "model_path"}),
        row<FIELD(settings.served_model_name)>(
            "", "served_model_name",
            {.meaning = "the name in /v1/models", .unset = "last part of model_path"}),
        row<FIELD(settings.tp_size)>(
            "", "tp_size",
            {.flag = "tp-size",
             .meaning = "attention heads of one replica are split over this many cards",
             .min = 1,
             .max = 65536,
             .unit = "cards"}),
        row<FIELD(settings.cp_size)>(
            "", "cp_size",
            {.flag = "cp-size",
             .meaning = "the context of one replica is split over this many cards",
             .min = 1,
             .max = 65536,
             .unit = "cards"}),
        row<FIELD(settings.ep_size)>(
            "", "ep_size",
            {.flag = "ep-size",
             .meaning = "the experts of one copy are split over this many cards",
             .min = 1,
             .max = 65536,
             .unit = "cards"}),
        row<FIELD(settings.dp_size)>("", "dp_size",
                                     {.flag = "dp-size",
                                      .meaning = "attention replicas on the prefill side",
                                      .min = 1,
                                      .max = 65536,
                                      .unit = "replicas"}),
        row<FIELD(settings.enable_ae_separation)>(
            "", "enable_ae_separation",
            {.flag = "enable-ae-separation", .meaning = "attention and experts on separate cards"}),
        row<FIELD(settings.attention_backend)>("", "attention_backend",
                                               {.meaning = "attention kernels"}),
        row<FIELD(settings.expert_backend)>("", "expert_backend", {.meaning = "expert kernels"}),
        row<FIELD(settings.kv_cache_dtype)>(
            "", "kv_cache_dtype", {.meaning = "type of the KV cache; auto: [model] dtype"}),
        row<FIELD(settings.max_running_requests)>(
            "", "max_running_requests",
            {.meaning = "requests that run at once, whole instance",
             .min = 1,
             .max = 1e6,
             .unit = "requests",
             .unset = "derived"}),
        row<FIELD(settings.max_total_tokens)>("", "max_total_tokens",
                                              {.meaning = "upper cap on the KV tokens of a replica",
                                               .min = 1,
                                               .unit = "tokens",
                                               .unset = "derived"}),
        row<FIELD(settings.chunked_prefill_size)>(
            "", "chunked_prefill_size",
            {.meaning = "prompt tokens of one step; a multiple of page_size; -1 turns chunking off",
             .min = -1,
             .max = 1e9,
             .unit = "tokens"}),
        row<FIELD(settings.page_size)>(
            "", "page_size",
            {.meaning = "tokens of one KV block", .min = 1, .max = 4096, .unit = "tokens"}),
        row<FIELD(settings.schedule_policy)>("", "schedule_policy",
                                             {.meaning = "order of waiting requests"}),
        row<FIELD(settings.schedule_low_priority_values_first)>(
            "", "schedule_low_priority_values_first",
            {.meaning = "policy priority: smaller values of a request's priority come first"}),
        row<FIELD(settings.enable_mixed_chunk)>(
            "", "enable_mixed_chunk",
            {.meaning = "one step computes prompts and the running requests' next tokens"}),
        row<FIELD(settings.schedule_conservativeness)>(
            "", "schedule_conservativeness",
            {.meaning = "larger: fewer requests run, fewer are retracted",
             .min = 1e-6,
             .max = 1e6}),
        row<FIELD(settings.mem_fraction_static)>(
            "", "mem_fraction_static",
            {.meaning = "(weights + KV pool) / card memory, less where the largest step needs more; on a CPU of "
                        "the memory free at start",
             .min = 0.01,
             .max = 1}),
        row<FIELD(settings.disable_radix_cache)>("", "disable_radix_cache",
                                                 {.meaning = "turns prefix reuse off"}),
        row<FIELD(settings.enable_mtp)>("", "enable_mtp",
                                        {.meaning = "draft tokens with the model's MTP layer"}),
        row<FIELD(settings.mtp_num_steps)>(
            "", "mtp_num_steps",
            {.meaning = "drafts a step", .min = 1, .max = 4, .unit = "tokens"}),
        row<FIELD(settings.max_queued_requests)>("", "max_queued_requests",
                                                 {.meaning = "beyond it: 503",
                                                  .min = 0,
                                                  .max = 1e9,
                                                  .unit = "requests",
                                                  .unset = "none"}),
        row<FIELD(settings.context_length)>("", "context_length",
                                            {.flag = "context-length",
                                             .meaning = "longest sequence",
                                             .min = 1,
                                             .max = 1e9,
                                             .unit = "tokens",
                                             .unset = "max_seq_len, else the model's"}),
        row<FIELD(settings.load_format)>(
            "", "load_format", {.meaning = "dummy: seeded random weights of the model's shape"}),
        row<FIELD(settings.random_seed)>("", "random_seed",
                                         {.meaning = "seeds requests that bring no seed",
                                          .min = 0,
                                          .max = 9e18,
                                          .unset = "none"}),
        row<FIELD(settings.enable_deterministic_inference)>(
            "", "enable_deterministic_inference",
            {.meaning = "results that depend on nothing but the request; false: prefill may be "
                        "non-absorbed, which is faster; auto: true on a CPU",
             .unset = "auto"}),
        row<FIELD(settings.hicache_size_gb)>(
            "", "hicache_size_gb",
            {.meaning = "host memory of each replica for evicted KV that is kept for reuse",
             .max = 1e6,
             .unit = "GB"}),
        row<FIELD(settings.hicache_path)>(
            "", "hicache_path",
            {.meaning = "folder of a disk for evicted KV that host memory does not hold; goes with "
                        "hicache_file_size_gb",
             .unset = "none"}),
        row<FIELD(settings.hicache_file_size_gb)>(
            "", "hicache_file_size_gb",
            {.meaning = "size of each replica's files there, which no process outlives",
             .max = 1e6,
             .unit = "GB"}),
        row<FIELD(settings.tool_call_parser)>(
            "", "tool_call_parser", {.meaning = "format of tool calls", .unset = "from the model"}),
        row<FIELD(settings.reasoning_parser)>(
            "", "reasoning_parser", {.meaning = "format of reasoning", .unset = "from the model"}),
        row<FIELD(settings.chat_template)>(
            "", "chat_template",
            {.meaning = "file with a chat template", .unset = "from the model"}),
        row<FIELD(settings.api_key)>(
            "", "api_key", {.meaning = "clients must send it", .unset = "none", .secret = true}),
        row<FIELD(settings.admin_api_key)>("", "admin_api_key",
                                           {.meaning = "callers of admin endpoints must send it",
                                            .unset = "none",
                                            .secret = true}),
        row<FIELD(settings.stream_interval)>("", "stream_interval",
                                             {.meaning = "tokens between two events of a stream",
                                              .min = 1,
                                              .max = 1e6,
                                              .unit = "tokens"}),
        row<FIELD(settings.enable_metrics)>("", "enable_metrics", {.meaning = "GET /metrics"}),
        row<FIELD(settings.log_level)>("", "log_level",
                                       {.meaning = "least serious line that is logged"}),
        row<FIELD(settings.watchdog_timeout)>(
            "", "watchdog_timeout",
            {.meaning = "a step that takes longer is treated as stuck",
             .min = 2,  // an idle rank goes round its loop every 0.5 s
             .max = 1e6,
             .unit = "seconds"}),
    };
    for (ConfigKey& key : http_rows()) rows.push_back(std::move(key));
    return rows;
}

}  // namespace aerie
