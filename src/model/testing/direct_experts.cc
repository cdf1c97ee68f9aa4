#include "model/testing/direct_experts.h"

#include "kernels/norm.h"
#include "kernels/rows.h"

namespace aerie::model {

Status DirectExperts::dispatch(const exchange::Dispatch& dispatch) {
    if (fail_in_ >= 0 && fail_in_-- == 0) return error("planted failure of a dispatch");
    auto& results = results_[dispatch.slot];
    CHECK(results.empty(), "slot {} is in flight", dispatch.slot);
    const int64_t rows = dispatch.hidden.rows;
    for (const RoutedExperts* rank : ranks_) {
        std::vector<int32_t> offsets = {0};
        std::vector<kernels::ExpertChoice> choices;
        for (int64_t row = 0; row < rows; ++row) {
            for (int k = 0; k < dispatch.topk; ++k) {
                const int64_t at = row * dispatch.topk + k;
                const int expert = dispatch.ids[at];
                const bool lost = dispatch.layer == dropped_layer_ && expert == dropped_expert_;
                if (rank->expert_begin <= expert && expert < rank->expert_end && !lost)
                    choices.push_back({expert - rank->expert_begin, dispatch.weights[at]});
            }
            offsets.push_back(static_cast<int32_t>(choices.size()));
        }
        results.emplace_back(dispatch.hidden.dtype, rows, dispatch.hidden.cols);
        if (rows == 0) continue;
        kernels::expert_ffn(*stream_, {.x = dispatch.hidden,
                                       .offsets = offsets.data(),
                                       .choices = choices.data(),
                                       .experts = rank->layer(dispatch.layer),
                                       .out = results.back().view(),
                                       .workspace = &workspace_});
    }
    return {};
}

Status DirectExperts::combine(int slot, View sum) {
    std::vector<ConstView> parts;
    for (Tensor& result : results_[slot]) parts.push_back(result.view());
    if (sum.rows > 0) kernels::add_partials(*stream_, sum, parts);
    results_[slot].clear();
    return {};
}

void DirectExperts::reset() {
    for (auto& slot : results_) slot.clear();
}

}  // namespace aerie::model
