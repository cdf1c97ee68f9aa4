#include <algorithm>
#include <utility>

#include "frontend/testing/fake_engine.h"

namespace aerie::frontend {

FakeEngine::FakeEngine(MakeScript make_script)
    : make_script_(std::move(make_script)), thread_([this] { run(); }) {}

FakeEngine::~FakeEngine() {
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

Status FakeEngine::add(const Request& request) {
    Script script = make_script_(request);
    std::lock_guard lock(mutex_);
    requests_.push_back(request);
    if (!script.refusal.empty()) {
        changed_.notify_all();
        return error("{}", script.refusal);
    }
    running_[request.id] = {.script = std::move(script), .due = Clock::now()};
    changed_.notify_all();
    return {};
}

void FakeEngine::abort(RequestId id) {
    std::lock_guard lock(mutex_);
    aborted_.insert(id);
    running_.erase(id);
    changed_.notify_all();
}

void FakeEngine::set_sink(std::function<void(std::vector<TokenOut>)> sink) {
    std::lock_guard lock(mutex_);
    sink_ = std::move(sink);
}

control::EngineState FakeEngine::state() const {
    std::lock_guard lock(mutex_);
    return state_;
}

Status FakeEngine::flush_cache(double) {
    std::lock_guard lock(mutex_);
    ++num_flushes_;
    return {};
}

int FakeEngine::num_flushes() const {
    std::lock_guard lock(mutex_);
    return num_flushes_;
}

std::string FakeEngine::collect_metrics(double) {
    return "# HELP sglang:num_running_reqs Requests that run.\n"
           "# TYPE sglang:num_running_reqs gauge\n"
           "sglang:num_running_reqs{model_name=\"fake\",engine_type=\"unified\",dp_rank=\"0\"} 3\n"
           "sglang:num_running_reqs{model_name=\"fake\",engine_type=\"unified\",dp_rank=\"1\"} 4\n"
           "# TYPE sglang:gen_throughput gauge\n"
           "sglang:gen_throughput{model_name=\"fake\",engine_type=\"unified\",dp_rank=\"1\"} 12.5\n"
           "# TYPE process_open_fds gauge\nprocess_open_fds 7\n";
}

void FakeEngine::set_state(control::EngineState state) {
    std::lock_guard lock(mutex_);
    state_ = std::move(state);
}

void FakeEngine::end_all() {
    std::lock_guard lock(mutex_);
    for (auto& [id, request] : running_) request.script.never_ends = false;
    changed_.notify_all();
}

std::vector<Request> FakeEngine::requests() const {
    std::lock_guard lock(mutex_);
    return requests_;
}

bool FakeEngine::wait_aborted(RequestId id, double limit_s) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, after(limit_s), [&] { return aborted_.contains(id); });
}

bool FakeEngine::wait_requests(size_t count, double limit_s) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, after(limit_s), [&] { return requests_.size() >= count; });
}

control::EngineState FakeEngine::healthy_state(int num_prefill, int num_decode) {
    control::EngineState state;
    for (int i = 0; i < num_prefill; ++i) {
        state.prefill.push_back({.replica = i, .node = i, .live = true, .epoch = 1});
    }
    for (int i = 0; i < num_decode; ++i) {
        state.decode.push_back({.replica = i, .node = num_prefill + i, .live = true, .epoch = 1});
    }
    state.expert_copy_complete = {true};
    return state;
}

std::vector<TokenOut> FakeEngine::step() {
    std::vector<TokenOut> outs;
    const TimePoint now = Clock::now();
    for (auto it = running_.begin(); it != running_.end();) {
        auto& [id, request] = *it;
        const Script& script = request.script;
        if (request.due > now || (script.never_ends && request.next >= script.tokens.size())) {
            ++it;
            continue;
        }
        request.due = now + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(script.seconds_per_step));
        TokenOut out;
        out.id = id;
        out.position = static_cast<int>(request.next);
        out.cached_tokens = script.cached_tokens;
        if (request.next == 0) out.logits_hashes = script.hashes;
        const size_t end = std::min(request.next + script.step, script.tokens.size());
        out.tokens.assign(script.tokens.begin() + request.next, script.tokens.begin() + end);
        for (size_t i = request.next; i < std::min(end, script.logprobs.size()); ++i) {
            out.logprobs.push_back(script.logprobs[i]);
        }
        out.num_decode_steps = ++request.num_steps - 1;  // the first is the prompt's
        request.next = end;
        const bool ended = end == script.tokens.size() && !script.never_ends;
        if (ended) {
            out.finish = script.finish;
            out.matched_token = script.matched_token;
            out.error = script.error;
            out.error_kind = script.error_kind;
        }
        outs.push_back(std::move(out));
        it = ended ? running_.erase(it) : std::next(it);
    }
    return outs;
}

void FakeEngine::run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        std::vector<TokenOut> outs = step();
        if (!outs.empty()) {
            auto sink = sink_;
            lock.unlock();
            sink(std::move(outs));
            lock.lock();
            continue;
        }
        TimePoint due = after(1);
        for (const auto& [id, request] : running_) {
            const bool silent = request.script.never_ends &&
                                request.next >= request.script.tokens.size();
            if (!silent) due = std::min(due, request.due);
        }
        changed_.wait_until(lock, due);
    }
}

}  // namespace aerie::frontend
