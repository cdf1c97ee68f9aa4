// What a pass ends with: the hidden rows that MTP continues from, and the LM head, split over the
// vocabulary by tp, on the ranks of cp 0; the leader gets all of it.
#include "kernels/rows.h"
#include "model/attention_rank_impl.h"

namespace aerie::model {

Status AttentionRank::Impl::compute_logits(const StepInput& input) {
    num_logits_rows = std::ssize(input.logits_rows);
    if (num_logits_rows == 0) return {};
    RETURN_IF_ERROR(gather_hidden(input.logits_rows));
    if (place.cp == 0) {
        Tensor& into = place.tp_size > 1 ? ws.logits_part : ws.logits;
        kernels::linear(stream, {.x = ws.logits_hidden.first_rows(num_logits_rows),
                                 .w = weights.lm_head,
                                 .y = into.first_rows(num_logits_rows)});
    }
    if (place.tp_size > 1) RETURN_IF_ERROR(gather_logits(num_logits_rows));
    if (stream.on_card() && place.index() == 0 && !input.draws.empty()) {
        kernels::draw(stream, {.logits = ws.logits.first_rows(num_logits_rows),
                               .params = numbers.draws(),
                               .drawn = reinterpret_cast<kernels::Drawn*>(
                                   ws.told.data<int64_t>() + num_stamps())});
    }
    return {};
}

// What the host reads of a step, once the queue has come to its end.
void AttentionRank::Impl::fetch_results(const StepInput& input) {
    const int64_t row_bytes = ws.logits.cols() * static_cast<int64_t>(sizeof(float));
    const auto is_drawn = [&](int64_t row) {
        return !input.draws.empty() && input.draws[row].num_ids > 0;
    };
    for (int64_t begin = 0, end; begin < num_logits_rows; begin = end) {
        end = begin + 1;
        if (is_drawn(begin)) continue;
        while (end < num_logits_rows && !is_drawn(end)) ++end;
        card::copy(stream.queue(), ws.logits_of_card.as<std::byte>() + begin * row_bytes,
                   ws.logits.data<std::byte>() + begin * row_bytes,
                   static_cast<size_t>((end - begin) * row_bytes));
    }
    num_drawn = input.draws.size();
    card::copy(stream.queue(), ws.told_to_host.as<int64_t>(), ws.told.data<int64_t>(),
               (static_cast<size_t>(num_stamps()) + num_drawn) * sizeof(int64_t));
}

std::span<const kernels::Drawn> AttentionRank::Impl::drawn() const {
    if (num_drawn == 0) return {};
    const int64_t* behind_stamps = ws.told_to_host.as<int64_t>() + num_stamps();
    return {reinterpret_cast<const kernels::Drawn*>(behind_stamps), num_drawn};
}

ConstView AttentionRank::Impl::logits() const {
    const int64_t cols = config.vocab_size;
    const void* rows = stream.on_card() ? ws.logits_of_card.as<void>() : ws.logits.data<void>();
    return {rows, DType::kF32, num_logits_rows, cols};
}

// Every rank may need any of them: who owns a row of the next pass need not own its h.
Status AttentionRank::Impl::gather_all_hidden(int64_t num_rows) {
    if (!alone()) {
        auto shown = options.group->share(place.index(), ws.hidden.data<std::byte>());
        if (!shown) return shown.error();
        copy_from_all(*shown, ws.hidden, {0, layout.num_tiles()}, ws.all_hidden);
        RETURN_IF_ERROR(options.group->done(place.index()));
    }
    num_hidden_rows = num_rows;
    return {};
}

Status AttentionRank::Impl::gather_hidden(std::span<const int32_t> rows) {
    if (alone() || weights.has_mtp) {
        // The only rank owns every row, in order; with MTP, each has them all.
        if (place.cp == 0) {
            kernels::gather_rows(stream, (alone() ? ws.hidden : ws.all_hidden).view(),
                                 numbers.logits_rows(),
                                 ws.logits_hidden.first_rows(num_logits_rows));
        }
        return {};
    }
    auto shown = options.group->share(place.index(), ws.hidden.data<std::byte>());
    if (!shown) return shown.error();
    if (place.cp == 0) {
        for (size_t i = 0; i < rows.size(); ++i) {
            const StepLayout::Owner owner = layout.owner_of(rows[i]);
            const ConstView theirs((*shown)[owner.rank], ws.hidden.dtype(), owner.own_row + 1,
                                   ws.hidden.cols());
            const auto to = static_cast<int64_t>(i);
            kernels::copy_rows(stream, theirs.slice_rows(owner.own_row, owner.own_row + 1),
                               ws.logits_hidden.view().slice_rows(to, to + 1));
        }
    }
    return options.group->done(place.index());
}

Status AttentionRank::Impl::gather_logits(int64_t num_rows) {
    auto shown = options.group->share(
        place.index(), place.cp == 0 ? ws.logits_part.data<std::byte>() : nullptr);
    if (!shown) return shown.error();
    if (place.index() == 0) {
        for (int tp = 0; tp < place.tp_size; ++tp) {
            const Range vocab = share_of(config.vocab_size, place.tp_size, tp);
            const ConstView theirs((*shown)[tp], DType::kF32, num_rows, vocab.size());
            kernels::copy_rows(
                stream, theirs,
                ws.logits.first_rows(num_rows).slice_cols(vocab.begin, vocab.end));
        }
    }
    return options.group->done(place.index());
}

}  // namespace aerie::model
