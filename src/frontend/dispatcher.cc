#include "frontend/dispatcher.h"

#include <sys/random.h>

#include <utility>

#include "base/hash.h"

namespace aerie::frontend {

using api::ApiError;

std::shared_ptr<Dispatcher> Dispatcher::make(control::EngineClient& engine,
                                             const DispatcherOptions& options) {
    std::shared_ptr<Dispatcher> made(new Dispatcher(engine, options));
    engine.set_sink([weak = std::weak_ptr(made)](std::vector<TokenOut> outs) {
        if (auto self = weak.lock()) self->take(outs);
    });
    return made;
}

uint64_t Dispatcher::draw_seed() {
    if (options_.random_seed) {
        const auto seed = static_cast<uint64_t>(*options_.random_seed);
        return mix64(mix64(seed) + num_seeds_.fetch_add(1));
    }
    uint64_t seed = 0;
    CHECK_EQ(getrandom(&seed, sizeof seed, 0), static_cast<ssize_t>(sizeof seed));
    return seed;
}

api::MaybeError Dispatcher::admit(const std::shared_ptr<Generation>& generation,
                                  const std::vector<EncodedPrompt>& prompts, RequestId& first_id,
                                  std::vector<ReplicaChoice::Placed>& placed) {
    const control::EngineState state = engine_.state();
    if (state.stopping) return ApiError{.status = 503, .message = "the server is stopping"};
    std::vector<PageChain> texts;  // [prompt]
    for (const EncodedPrompt& prompt : prompts) {
        texts.emplace_back(replica_choice_.page_size(), generation->call().cache_salt)
            .append(prompt.ids);
    }
    const int n = generation->call().n;
    const int num_new = generation->num_choices();
    std::lock_guard lock(mutex_);
    if (refusing_) return ApiError{.status = 503, .message = "the server is stopping"};
    const int num_running = static_cast<int>(running_.size());
    if (options_.max_in_flight > 0 && num_running + num_new > options_.max_in_flight) {
        return ApiError{.status = 503,
                        .message = fmt::format(
                            "The request queue is full: {} requests are in flight and this one "
                            "needs {}, at most {} may be ({})",
                            num_running, num_new, options_.max_in_flight,
                            options_.max_in_flight_reason),
                        .code = "queue_full"};
    }
    for (size_t i = 0; i < prompts.size(); ++i) {
        auto taken = replica_choice_.take(state, texts[i], n, prompts[i].max_new_tokens);
        if (!taken) {
            for (size_t t = 0; t < placed.size(); ++t) {
                for (int choice = 0; choice < n; ++choice) {
                    ReplicaChoice::Placed copy = placed[t];
                    replica_choice_.release(copy, texts[t]);
                }
            }
            return ApiError{.status = 503, .message = taken.message()};
        }
        placed.push_back(*taken);
    }
    first_id = next_id_;
    next_id_ += static_cast<RequestId>(num_new);
    for (int i = 0; i < num_new; ++i) {
        running_.emplace(first_id + i,
                         Running{generation, i, first_id, placed[i / n], texts[i / n]});
    }
    return {};
}

void Dispatcher::run(const std::shared_ptr<Generation>& generation,
                     std::vector<EncodedPrompt> prompts, Answer answer) {
    RequestId first_id = 0;
    std::vector<ReplicaChoice::Placed> placed;  // [prompt]
    if (auto error = admit(generation, prompts, first_id, placed)) {
        generation->fail(*error);
        return;
    }
    for (int i = 0; i < generation->num_choices(); ++i) {
        generation->set_dp_rank(i, placed[i / generation->call().n].decode);
    }
    answer.on_disconnect([self = weak_from_this(), weak = std::weak_ptr(generation), first_id] {
        auto dispatcher = self.lock();
        auto gone = weak.lock();
        if (dispatcher && gone) dispatcher->retire(first_id, gone->client_gone());
    });
    const api::Call& call = generation->call();
    const uint64_t seed = call.seed ? *call.seed : draw_seed();
    for (int i = 0; i < generation->num_choices(); ++i) {
        const int prompt = i / call.n;
        Request request;
        request.id = first_id + i;
        request.sampling = call.sampling;
        request.prompt = prompts[prompt].ids;
        request.sampling.choice = i % call.n;
        request.sampling.max_new_tokens = prompts[prompt].max_new_tokens;
        // A drawn seed makes equal prompts of one call differ too.
        request.sampling.seed = call.seed ? seed : mix64(seed + static_cast<uint64_t>(prompt));
        request.hash_logits = call.logits_hash;
        request.priority = call.priority;
        request.cache_salt = call.cache_salt;
        request.prefill_replica = placed[prompt].prefill;
        request.decode_replica = placed[prompt].decode;
        if (!is_running(request.id)) continue;  // ended meanwhile
        if (auto status = engine_.add(request); !status) {
            retire(first_id, generation->fail({.status = 503, .message = status.message()}));
            return;
        }
        // Ended while it was added: the engine may have seen the abort before the request.
        if (!is_running(request.id)) engine_.abort(request.id);
    }
}

bool Dispatcher::is_running(RequestId id) const {
    std::lock_guard lock(mutex_);
    return running_.contains(id);
}

void Dispatcher::take(const std::vector<TokenOut>& outs) {
    for (const TokenOut& out : outs) {
        std::shared_ptr<Generation> generation;
        RequestId first_id = 0;
        int choice = 0;
        {
            std::lock_guard lock(mutex_);
            const auto found = running_.find(out.id);
            if (found == running_.end()) continue;  // aborted
            Running& running = found->second;
            running.text.append(out.tokens);
            if (!out.tokens.empty()) replica_choice_.prefilled(running.placed);
            generation = running.generation;
            first_id = running.first_id;
            choice = running.choice;
        }
        retire(first_id, generation->take(choice, out));
    }
}

void Dispatcher::retire(RequestId first_id, const Generation::Ended& ended) {
    if (ended.choices.empty()) return;
    std::vector<Running> retired;  // their generations end outside the lock
    {
        std::lock_guard lock(mutex_);
        for (const int choice : ended.choices) {
            const auto found = running_.find(first_id + choice);
            if (found == running_.end()) continue;
            replica_choice_.release(found->second.placed, found->second.text);
            retired.push_back(std::move(found->second));
            running_.erase(found);
        }
        if (running_.empty()) idle_.notify_all();
    }
    for (const int choice : ended.to_abort) engine_.abort(first_id + choice);
}

void Dispatcher::fail(const std::shared_ptr<Generation>& generation, const ApiError& error) {
    RequestId first_id = 0;
    {
        std::lock_guard lock(mutex_);
        for (const auto& [id, running] : running_) {
            if (running.generation == generation) first_id = running.first_id;
        }
    }
    retire(first_id, generation->fail(error));
}

void Dispatcher::abort(const std::string& rid, bool all) {
    std::vector<std::pair<RequestId, std::shared_ptr<Generation>>> found;
    {
        std::lock_guard lock(mutex_);
        for (const auto& [id, running] : running_) {
            const bool named = !rid.empty() && running.generation->call().rid == rid;
            if (all || named) found.emplace_back(running.first_id, running.generation);
        }
    }
    // A generation of several choices is found more than once; ended, it does nothing.
    for (const auto& [first_id, generation] : found) retire(first_id, generation->abort());
}

int Dispatcher::num_in_flight() const {
    std::lock_guard lock(mutex_);
    return static_cast<int>(running_.size());
}

void Dispatcher::refuse_new() {
    std::lock_guard lock(mutex_);
    refusing_ = true;
}

bool Dispatcher::wait_idle(double limit_s) {
    std::unique_lock lock(mutex_);
    return idle_.wait_until(lock, after(limit_s), [this] { return running_.empty(); });
}

}  // namespace aerie::frontend
