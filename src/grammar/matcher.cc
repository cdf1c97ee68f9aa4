#include "grammar/matcher.h"

#include <dlpack/dlpack.h>
#include <xgrammar/matcher.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "grammar/compiled.h"

namespace aerie::grammar {
namespace {

// What `run` returns, or what it threw as an error.
template <typename Run>
auto guarded(Run run) -> decltype(run()) {
    try {
        return run();
    } catch (const std::exception& failure) {
        return Error{failure.what()};
    } catch (...) {
        return Error{"the grammar failed"};
    }
}

}  // namespace

struct Matcher::Impl {
    Impl(std::shared_ptr<const Compiled> given, bool after_reasoning)
        : compiled(std::move(given)), matcher(compiled->grammar), in_reasoning(after_reasoning) {}

    const Vocabulary& vocabulary() const { return *compiled->vocabulary; }
    bool ends(int32_t token) const {
        const auto& ids = vocabulary().eos_ids();
        return std::find(ids.begin(), ids.end(), token) != ids.end();
    }
    static void set(std::span<uint32_t> mask, int32_t id, bool allowed) {
        const uint32_t bit = uint32_t{1} << (id % 32);
        uint32_t& word = mask[static_cast<size_t>(id / 32)];
        word = allowed ? word | bit : word & ~bit;
    }
    void set_ends(std::span<uint32_t> mask, bool allowed) const {
        for (const int32_t id : vocabulary().eos_ids()) set(mask, id, allowed);
    }

    const std::shared_ptr<const Compiled> compiled;  // shared with the cache
    xgrammar::GrammarMatcher matcher;
    bool in_reasoning;
    std::string tail;  // of the reasoning: what may be the beginning of its end
    int64_t num_accepted = 0;
};

Matcher::Matcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Matcher::~Matcher() = default;

Result<std::unique_ptr<Matcher>> Matcher::create(std::shared_ptr<const Compiled> compiled,
                                                 bool after_reasoning) {
    return guarded([&]() -> Result<std::unique_ptr<Matcher>> {
        auto impl = std::make_unique<Impl>(std::move(compiled), after_reasoning);
        return std::unique_ptr<Matcher>(new Matcher(std::move(impl)));
    });
}

size_t Matcher::num_words() const {
    return (static_cast<size_t>(impl_->vocabulary().size()) + 31) / 32;
}

bool Matcher::is_terminated() const { return impl_->matcher.IsTerminated(); }

Status Matcher::accept_reasoning(int32_t token) {
    std::string seen = impl_->tail;
    seen += impl_->vocabulary().bytes(token);
    const size_t end = seen.find(kReasoningEnd);
    if (end == seen.npos) {
        impl_->tail = seen.substr(seen.size() - std::min(seen.size(), kReasoningEnd.size() - 1));
        return {};
    }
    const std::string rest = seen.substr(end + kReasoningEnd.size());
    if (!rest.empty() && !impl_->matcher.AcceptString(rest)) {
        return error("token {} goes on with \"{}\" behind {}, which the grammar does not allow",
                     token, rest, kReasoningEnd);
    }
    impl_->in_reasoning = false;
    return {};
}

Status Matcher::accept(int32_t token) {
    Status accepted = guarded([&]() -> Status {
        if (is_terminated() && impl_->ends(token)) return {};
        if (impl_->in_reasoning) return accept_reasoning(token);
        if (!is_terminated() && impl_->matcher.AcceptToken(token)) return {};
        return error("token {} (\"{}\") is not what the grammar allows after {} tokens", token,
                     impl_->vocabulary().bytes(token), impl_->num_accepted);
    });
    if (accepted) ++impl_->num_accepted;
    return accepted;
}

// All but the ends, and but those that end the reasoning with what the grammar does not begin with.
void Matcher::fill_reasoning(std::span<uint32_t> mask) {
    std::fill(mask.begin(), mask.end(), ~uint32_t{0});
    impl_->set_ends(mask, false);
    const auto clear_refused = [&](size_t num_before) {
        for (const int32_t id : impl_->vocabulary().ending_reasoning(num_before)) {
            const std::string seen =
                impl_->tail + std::string(impl_->vocabulary().bytes(id));
            const size_t rest = seen.find(kReasoningEnd) + kReasoningEnd.size();
            const bool allowed = impl_->matcher.AcceptString(seen.substr(rest));
            if (allowed) impl_->matcher.Rollback(1);
            Impl::set(mask, id, allowed);
        }
    };
    clear_refused(0);
    for (size_t num_before = 1; num_before < kReasoningEnd.size(); ++num_before) {
        if (impl_->tail.ends_with(kReasoningEnd.substr(0, num_before))) clear_refused(num_before);
    }
}

Status Matcher::fill_mask(std::span<uint32_t> mask) {
    CHECK_EQ(mask.size(), num_words());
    if (is_terminated()) {
        std::fill(mask.begin(), mask.end(), 0);
        impl_->set_ends(mask, true);
        return {};
    }
    return guarded([&]() -> Status {
        if (impl_->in_reasoning) {
            fill_reasoning(mask);
            return {};
        }
        auto size = static_cast<int64_t>(mask.size());
        DLTensor tensor{};
        tensor.data = mask.data();
        tensor.device = {kDLCPU, 0};
        tensor.ndim = 1;
        tensor.dtype = xgrammar::GetBitmaskDLType();
        tensor.shape = &size;
        impl_->matcher.FillNextTokenBitmask(&tensor);
        const int in_last = impl_->vocabulary().size() % 32;
        if (in_last != 0) mask.back() &= (uint32_t{1} << in_last) - 1;
        const bool any =
            std::any_of(mask.begin(), mask.end(), [](uint32_t word) { return word != 0; });
        if (any) return {};
        return error("the grammar allows no token after {} tokens", impl_->num_accepted);
    });
}

}  // namespace aerie::grammar
