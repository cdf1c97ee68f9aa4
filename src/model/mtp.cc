// The MTP layer: eh_proj(enorm(embedding of t_j) | hnorm(h_{j-1})), then a decoder layer as the others.
#include <algorithm>
#include <cstring>

#include "base/fault.h"
#include "kernels/norm.h"
#include "kernels/rows.h"
#include "model/attention_rank_impl.h"

namespace aerie::model {

Status AttentionRank::Impl::check(const DraftInput& input) const {
    if (!weights.has_mtp) return error("draft: the rank has no MTP layer, expected enable_mtp = true");
    if (input.hidden_of.size() != input.step.tokens.size()) {
        return error("draft: hidden rows of {} tokens, expected of {}", input.hidden_of.size(),
                     input.step.tokens.size());
    }
    const ConstView& given = input.given_hidden;
    if (given.rows > 0 &&
        (given.cols != config.hidden_size || given.dtype != weights.embedding->dtype())) {
        return error("draft: given_hidden is {} of {} columns, expected {} of {}",
                     name_of(given.dtype), given.cols, name_of(weights.embedding->dtype()),
                     config.hidden_size);
    }
    for (int32_t from : input.hidden_of) {
        if (from >= num_hidden_rows)
            return error("draft: hidden row {}, the last pass had {}", from, num_hidden_rows);
        if (from < kNoHidden && given_hidden_row(from) >= given.rows)
            return error("draft: given hidden row {} of {}", given_hidden_row(from), given.rows);
    }
    return {};
}

Status AttentionRank::Impl::draft(const DraftInput& input, LayerObserver* observer) {
    if (options.profile != nullptr) options.profile->begin();
    prepare(input.step);
    choose_hidden(input.hidden_of);
    join_inputs(input.given_hidden);
    end_of(StepOp::kEmbed);
    const int64_t layer = config.num_hidden_layers;
    RETURN_IF_ERROR(run_layers({layer, layer + 1}, input.step.phase, observer));
    return finish(*weights.mtp.shared_head_norm, input.step);
}

// hidden_of of the own rows.
void AttentionRank::Impl::choose_hidden(std::span<const int32_t> hidden_of) {
    ws.hidden_of.clear();
    for (int64_t tile = 0; tile < layout.num_tiles(); ++tile) {
        const Range rows = layout.share(tile, place.cp, place.tp);
        ws.hidden_of.insert(ws.hidden_of.end(), hidden_of.begin() + rows.begin,
                            hidden_of.begin() + rows.end);
    }
    if (fault_planted(Fault::kMtpHidden)) [[unlikely]]
        std::fill(ws.hidden_of.begin(), ws.hidden_of.end(), kNoHidden);
}

// x of the own rows, as many at once as draft_input has room for.
void AttentionRank::Impl::join_inputs(ConstView given) {
    const MtpWeights& mtp = weights.mtp;
    for (Range rows{0, 0}; rows.begin < layout.num_own_rows(); rows.begin = rows.end) {
        rows.end = std::min(rows.begin + ws.draft_input.rows(), layout.num_own_rows());
        const View input = ws.draft_input.first_rows(rows.size());
        const View embedded = input.slice_cols(0, config.hidden_size);
        kernels::gather_rows(stream, weights.embedding->view(), numbers.own_tokens() + rows.begin,
                             embedded);
        kernels::rms_norm(stream, embedded, mtp.embed_norm->data<float>(),
                          static_cast<float>(config.rms_norm_eps), embedded);
        norm_hidden(std::span(ws.hidden_of).subspan(rows.begin, rows.size()), given,
                    input.slice_cols(config.hidden_size, input.cols));
        kernels::linear(stream, {.x = input, .w = mtp.eh_proj, .y = own(ws.x, rows)});
    }
}

// hnorm of each row's h. Rows that follow each other where they come from are normed in one call.
void AttentionRank::Impl::norm_hidden(std::span<const int32_t> hidden_of, ConstView given,
                                      View into) {
    const auto num_rows = static_cast<int64_t>(hidden_of.size());
    for (int64_t begin = 0, end = 0; begin < num_rows; begin = end) {
        const int32_t from = hidden_of[begin];
        const int32_t step = from == kNoHidden ? 0 : from < 0 ? -1 : 1;
        for (end = begin + 1; end < num_rows && hidden_of[end] == hidden_of[end - 1] + step; ++end) {}
        const View out = into.slice_rows(begin, end);
        if (from == kNoHidden) {
            for (int64_t row = 0; row < out.rows; ++row)
                std::memset(out.row(row), 0, static_cast<size_t>(out.cols) * size_of(out.dtype));
            continue;
        }
        const ConstView source = from < 0 ? given : all_hidden();
        const int64_t first = from < 0 ? given_hidden_row(from) : from;
        kernels::rms_norm(stream, source.slice_rows(first, first + out.rows),
                          weights.mtp.hidden_norm->data<float>(), static_cast<float>(config.rms_norm_eps),
                          out);
    }
}

}  // namespace aerie::model
