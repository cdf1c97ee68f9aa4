// The load: requests to an OpenAI-protocol server's /v1/completions, `concurrency` at a time.
//
// One thread, one event loop, a kept-alive connection for each of the concurrent streams: it runs
// beside the server that it measures, and must cost little.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace aerie::bench {

struct Endpoint {
    std::string host;
    int port = 0;
};

// "http://HOST[:PORT]", with or without a trailing "/" or "/v1".
Result<Endpoint> parse_url(const std::string& url);

// A prompt of a file, and how many tokens its answer has there.
struct Example {
    std::vector<int32_t> prompt_ids;
    int output_len = 0;
};

// A JSON array of objects that hold prompt_ids and output_ids (as the golden files do), or, in place of
// output_ids, output_len.
Result<std::vector<Example>> read_examples(const std::string& path);

struct LoadShape {
    int requests = 16;
    int concurrency = 4;
    int prompt_len = 128, output_len = 128;  // tokens
    // Before its own prompt_len tokens each prompt has one of num_prefixes texts, in turn.
    int num_prefixes = 0, prefix_len = 0;
    std::vector<Example> examples = {};      // in turn; empty: prompts and lengths are as above
    double rate = 0;                         // requests a second; 0: as soon as a stream is free
    int64_t seed = 0;
    int max_token_id = 8159;  // below the special tokens of every DeepSeek vocabulary
    int warmup = 1;           // requests
    double timeout_s = 600;   // of one request
    std::string model = {}, api_key = {};  // empty: the first of /v1/models; none
};

// Tokens that were read from the socket at once.
struct Arrival {
    double at_s;  // since the run began
    int num_tokens;
};

struct RequestRecord {
    double started_s = 0, ended_s = 0;  // since the run began; with a rate: since it was due
    std::vector<Arrival> arrivals;
    int64_t num_cached = 0;  // prompt tokens that the server says it had cached
    std::string failure;  // empty: a whole answer
};

struct LoadResult {
    std::vector<RequestRecord> requests;  // [requests]
    bool counted_by_ids = true;  // false: the server sends no token_ids, so chunks were counted
};

int output_len(const LoadShape& shape, int64_t index);
// The prompt of request `index`: an example's, or ids from 3 to max_token_id behind a first 0, by seed and index
// alone. The warm-up has negative indices, and a prefix that nobody else has.
std::vector<int32_t> prompt_ids(const LoadShape& shape, int64_t index);

// Blocks until all requests have ended. The error is of what comes before them: no connection, no
// model, a warm-up that failed. What fails later stands in the records.
Result<LoadResult> run_load(const Endpoint& endpoint, const LoadShape& shape);

struct HttpReply {
    int status = 0;
    std::string body;
};
// One GET over a connection of its own. Blocks for at most `limit_s`.
Result<HttpReply> http_get(const Endpoint& endpoint, const std::string& path,
                           const std::string& api_key, double limit_s);

}  // namespace aerie::bench
