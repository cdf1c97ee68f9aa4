#include "config/checks.h"

#include "config/check_context.h"

namespace aerie {

void check_config(const Config& config, const Sources& sources, const ModelConfig* model,
                  Diagnostics& diagnostics) {
    CheckContext context{config, sources, model, diagnostics};
    check_pairs(context);
    const bool lists_given = !sources.any_bad("cluster") && !sources.any_bad("ae_separation");
    check_sizes(context, lists_given && check_nodes(context));
    check_model_fits(context);
    check_values(context);
}

}  // namespace aerie
