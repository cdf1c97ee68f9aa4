// PlainModel: the model's arithmetic in loops over float32, written from docs alone: attention is not
// absorbed, nothing is packed, cached, split or batched. For tests of shapes that no golden file has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "model/tensor_source.h"

namespace aerie::model {

class PlainModel {
  public:
    PlainModel(const ModelConfig& config, TensorSource& source)
        : config_(config), source_(source) {}

    using Rows = std::vector<std::vector<double>>;  // [tokens][hidden_size]

    // After the final norm, of every position.
    Rows hidden(const std::vector<int32_t>& tokens);
    // The MTP layer's after shared_head.norm; h[j] is the hidden row that slot j is given.
    Rows mtp_hidden(const std::vector<int32_t>& tokens, const Rows& h);
    // What the LM head makes of them: [rows, vocab_size].
    std::vector<float> logits(const Rows& hidden);
    std::vector<float> logits(const std::vector<int32_t>& tokens) { return logits(hidden(tokens)); }

  private:
    std::vector<double> vector(const std::string& name, int64_t size);
    Rows matrix(const std::string& module, int64_t rows, int64_t cols, TensorKind kind);
    Rows linear(const Rows& x, const std::string& module, int64_t rows,
                TensorKind kind = TensorKind::kWeight);
    Rows norm(const Rows& x, const std::string& name);
    void rotate(double* pairs, int64_t position) const;
    Rows attention(const Rows& x, const std::string& prefix);
    Rows mlp(const Rows& x, const std::string& prefix, int64_t inner);
    Rows experts(const Rows& x, const std::string& prefix);
    Rows embed(const std::vector<int32_t>& tokens);
    void layer(Rows& x, int layer);

    const ModelConfig& config_;
    TensorSource& source_;
};

}  // namespace aerie::model
