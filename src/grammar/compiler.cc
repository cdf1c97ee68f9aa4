#include "grammar/compiler.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "grammar/read.h"

namespace aerie::grammar {
namespace {

using Done = std::function<void(const Outcome&)>;

// Equal grammars have equal keys; after_reasoning is a matter of the matchers.
std::string key_of(const Grammar& grammar) {
    return static_cast<char>(grammar.kind) + grammar.text;
}

constexpr double kLeaveBehindSeconds = 1;
constexpr size_t kMaxQueue = 1024;
// Threads that are replaced while they run for nobody. A thread beyond them is missed until any one
// of those is done, which then takes its place: no thread is lost for good.
constexpr int kMaxGivenUp = 4;

}  // namespace

struct Compiler::Impl : std::enable_shared_from_this<Compiler::Impl> {
    struct Job {
        Grammar grammar;
        TimePoint deadline;  // of its turn to come; once it runs, of its end
        bool started = false;
        bool given_up = false;      // its thread goes on, for nobody
        std::vector<Done> waiting;  // empty: it was out of time
    };
    struct Known {
        std::string key;
        Outcome outcome;
        size_t num_bytes;
    };

    Impl(const Tokenizer& tokenizer, CompilerOptions given)
        : options(std::move(given)), reader(tokenizer, options.eos_ids, options.only_check) {}

    void start_threads();  // mutex held, here and below
    void start_thread(const char* name, void (Impl::*run)());
    void work();
    void watch();
    Outcome read(const Grammar& grammar);
    const Outcome* look_up(const std::string& key);
    void call(std::unique_lock<std::mutex>& lock, const std::vector<Done>& waiting,
              const Outcome& outcome);
    void keep(const std::string& key, const Outcome& outcome);
    std::vector<Done> expire(Outcome& outcome);

    const CompilerOptions options;
    Reader reader;

    std::mutex mutex;
    std::condition_variable changed;
    std::unordered_map<std::string, std::shared_ptr<Job>> jobs;  // shared with who runs it
    std::deque<std::string> queue;                               // keys of jobs not started
    std::list<Known> known;                                      // the last used first
    std::unordered_map<std::string, std::list<Known>::iterator> places;
    size_t num_bytes = 0;
    int num_threads = 0;
    int num_given_up = 0;  // threads that run for nobody; the first kMaxGivenUp are replaced
    int num_calling = 0;   // of these, those that run a `done`
    bool stopping = false;
};

const Outcome* Compiler::Impl::look_up(const std::string& key) {
    const auto found = places.find(key);
    if (found == places.end()) return nullptr;
    known.splice(known.begin(), known, found->second);
    return &found->second->outcome;
}

void Compiler::Impl::keep(const std::string& key, const Outcome& outcome) {
    if (const auto old = places.find(key); old != places.end()) {
        num_bytes -= old->second->num_bytes;
        known.erase(old->second);
        places.erase(old);
    }
    constexpr size_t kOverhead = 512;
    const size_t size = kOverhead + 2 * key.size() + outcome.error.size() +
                        (outcome.compiled ? memory_of(*outcome.compiled) : 0);
    known.push_front({key, outcome, size});
    places[key] = known.begin();
    num_bytes += size;
    while (num_bytes > options.max_cache_bytes && known.size() > 1) {
        num_bytes -= known.back().num_bytes;
        places.erase(known.back().key);
        known.pop_back();
    }
}

Outcome Compiler::Impl::read(const Grammar& grammar) {
    const TimePoint begin = Clock::now();
    if (options.before_read) options.before_read(grammar);
    auto compiled = reader.read(grammar);
    Outcome outcome;
    outcome.seconds = seconds_since(begin);
    if (compiled)
        outcome.compiled = *std::move(compiled);
    else
        outcome.error = compiled.message();
    log_debug("a grammar of {} bytes: {} in {:.3f} s", grammar.text.size(),
              outcome.error.empty() ? "compiled" : outcome.error, outcome.seconds);
    return outcome;
}

// With the first job: most servers are never asked for a grammar.
void Compiler::Impl::start_threads() {
    if (num_threads > 0) return;
    for (int i = 0; i < options.num_threads; ++i) start_thread("grammar", &Impl::work);
    start_thread("grammar-limit", &Impl::watch);
}

void Compiler::Impl::start_thread(const char* name, void (Impl::*run)()) {
    ++num_threads;
    std::thread([impl = shared_from_this(), name, run] {
        set_thread_name(name);
        (impl.get()->*run)();
    }).detach();
}

void Compiler::Impl::call(std::unique_lock<std::mutex>& lock, const std::vector<Done>& waiting,
                          const Outcome& outcome) {
    ++num_calling;
    lock.unlock();
    for (const Done& done : waiting) done(outcome);
    lock.lock();
    --num_calling;
    changed.notify_all();
}

void Compiler::Impl::work() {
    std::unique_lock lock(mutex);
    while (true) {
        changed.wait(lock, [this] { return stopping || !queue.empty(); });
        if (stopping) break;
        const std::string key = std::move(queue.front());
        queue.pop_front();
        const auto found = jobs.find(key);
        if (found == jobs.end()) continue;  // out of time
        const std::shared_ptr<Job> job = found->second;
        job->started = true;
        job->deadline = after(options.limit_s);
        lock.unlock();
        const Outcome outcome = read(job->grammar);
        lock.lock();
        keep(key, outcome);
        // Another job of this key may have begun since this one was given up.
        const bool given_up = job->given_up;
        if (const auto now = jobs.find(key); now != jobs.end() && now->second == job)
            jobs.erase(now);
        const std::vector<Done> waiting = std::move(job->waiting);
        if (stopping) break;
        call(lock, waiting, outcome);
        if (given_up && num_given_up-- <= kMaxGivenUp) break;  // another has taken its place
    }
    --num_threads;
    changed.notify_all();
}

// Takes one job that is out of time.
std::vector<Done> Compiler::Impl::expire(Outcome& outcome) {
    for (auto job = jobs.begin(); job != jobs.end(); ++job) {
        if (job->second->deadline > Clock::now()) continue;
        const bool started = job->second->started;
        outcome.busy = !started;
        outcome.error = started
                            ? fmt::format("it takes more than {} s to compile", options.limit_s)
                            : fmt::format("its turn to be compiled did not come within {} s: others "
                                          "came before it",
                                          options.limit_s);
        std::vector<Done> waiting = std::move(job->second->waiting);
        // One that runs is known to be slow from now on; when it ends, how it ended is known.
        if (started) {
            keep(job->first, outcome);
            job->second->given_up = true;
            if (++num_given_up <= kMaxGivenUp) start_thread("grammar", &Impl::work);
        }
        jobs.erase(job);
        return waiting;
    }
    return {};
}

void Compiler::Impl::watch() {
    std::unique_lock lock(mutex);
    while (!stopping) {
        TimePoint next = after(60);
        for (const auto& [key, job] : jobs) next = std::min(next, job->deadline);
        if (next > Clock::now()) {
            changed.wait_until(lock, next);
            continue;
        }
        Outcome outcome{.seconds = options.limit_s};
        const std::vector<Done> waiting = expire(outcome);
        call(lock, waiting, outcome);
    }
    --num_threads;
    changed.notify_all();
}

Compiler::Compiler(const Tokenizer& tokenizer, CompilerOptions options)
    : impl_(std::make_shared<Impl>(tokenizer, std::move(options))) {}

Compiler::~Compiler() {
    std::unique_lock lock(impl_->mutex);
    impl_->stopping = true;
    impl_->changed.notify_all();
    impl_->changed.wait_until(lock, after(kLeaveBehindSeconds),
                              [this] { return impl_->num_threads == 0; });
    // What they call may use what goes next.
    impl_->changed.wait(lock, [this] { return impl_->num_calling == 0; });
}

std::optional<Outcome> Compiler::find(const Grammar& grammar) {
    const std::string key = key_of(grammar);
    std::lock_guard lock(impl_->mutex);
    const Outcome* outcome = impl_->look_up(key);
    return outcome ? std::optional(*outcome) : std::nullopt;
}

void Compiler::compile(const Grammar& grammar, Done done) {
    const std::string key = key_of(grammar);
    std::unique_lock lock(impl_->mutex);
    if (const Outcome* outcome = impl_->look_up(key)) {
        const Outcome copy = *outcome;
        lock.unlock();
        return done(copy);
    }
    if (!impl_->jobs.contains(key) && impl_->queue.size() >= kMaxQueue) {
        lock.unlock();
        return done({.compiled = nullptr,
                     .error = fmt::format("{} others wait to be compiled, more may not", kMaxQueue),
                     .busy = true});
    }
    std::shared_ptr<Impl::Job>& job = impl_->jobs[key];
    if (!job) {
        job = std::make_shared<Impl::Job>();
        job->grammar = grammar;
        job->deadline = after(impl_->options.limit_s);
        impl_->queue.push_back(key);
        impl_->start_threads();
        impl_->changed.notify_all();
    }
    job->waiting.push_back(std::move(done));
}

Outcome Compiler::compile(const Grammar& grammar) {
    struct Answer {
        std::mutex mutex;
        std::condition_variable changed;
        std::optional<Outcome> outcome;
    };
    const auto answer = std::make_shared<Answer>();  // shared with the compiler's thread
    compile(grammar, [answer](const Outcome& outcome) {
        std::lock_guard lock(answer->mutex);
        answer->outcome = outcome;
        answer->changed.notify_all();
    });
    constexpr double kSlackSeconds = 5;
    std::unique_lock lock(answer->mutex);
    answer->changed.wait_until(lock, after(2 * impl_->options.limit_s + kSlackSeconds),
                               [&] { return answer->outcome.has_value(); });
    if (answer->outcome) return *answer->outcome;
    return {.compiled = nullptr, .error = "the compiler of grammars does not answer", .busy = true};
}

}  // namespace aerie::grammar
