#include <algorithm>

#include "template/callable.h"
#include "template/failure.h"

namespace aerie::jinja {

std::optional<Value> Loop::pull() {
    if (!read_ahead_.empty()) {
        Value item = std::move(read_ahead_.back());
        read_ahead_.pop_back();
        return item;
    }
    return source_ ? source_->next() : std::nullopt;
}

bool Loop::advance() {
    std::optional<Value> next = after_ ? std::move(after_) : pull();
    after_.reset();
    if (!next) return false;
    ++index0_;
    before_ = std::move(current_);
    current_ = std::move(next);
    return true;
}

bool Loop::peek() {
    if (!after_) after_ = pull();
    return after_.has_value();
}

int64_t Loop::length() {
    if (length_) return *length_;
    if (source_ && source_->size()) {
        length_ = static_cast<int64_t>(*source_->size());
    } else {
        std::vector<Value> rest;
        while (auto item = pull()) rest.push_back(*std::move(item));
        std::reverse(rest.begin(), rest.end());
        read_ahead_ = std::move(rest);
        length_ = static_cast<int64_t>(read_ahead_.size()) + index0_ + 1 + (after_ ? 1 : 0);
    }
    return *length_;
}

std::optional<Value> Loop::attribute(std::string_view name) {
    if (name == "index") return index0_ + 1;
    if (name == "index0") return index0_;
    if (name == "first") return index0_ == 0;
    if (name == "last") return !peek();
    if (name == "length") return length();
    if (name == "revindex") return length() - index0_;
    if (name == "revindex0") return length() - index0_ - 1;
    if (name == "depth") return int64_t{1};
    if (name == "depth0") return int64_t{0};
    if (name == "previtem") {
        return before_ ? *before_ : Value::undefined("there is no previous item");
    }
    if (name == "nextitem") return peek() ? *after_ : Value::undefined("there is no next item");
    return std::nullopt;
}

Value Loop::cycle(const std::vector<Value>& values) const {
    if (values.empty()) fail("no items for cycling given");
    return values[index0_ % values.size()];
}

bool Loop::changed(std::vector<Value> values) {
    const bool same = last_changed_ && last_changed_->size() == values.size() &&
                      std::equal(values.begin(), values.end(), last_changed_->begin(), equal);
    if (!same) last_changed_ = std::move(values);
    return !same;
}

}  // namespace aerie::jinja
