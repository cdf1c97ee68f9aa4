#include "kernels/qkv.h"

#include "kernels/norm.h"
#ifdef AERIE_CUDA
#include "kernels/cuda/qkv.h"
#endif

namespace aerie::kernels {

void finish_qkv(Stream& stream, const RopeTable& table, const QkvArgs& args) {
#ifdef AERIE_CUDA
    if (stream.on_card() && cuda::finishes_qkv(table, args)) return cuda::finish_qkv(stream, table, args);
#endif
    const int64_t width = args.query_width, pe = args.qkv.cols - table.dim();
    CHECK(args.qkv.cols == width + args.pool.width, "rows of {}, a query of {}, a pool of {}",
          args.qkv.cols, width, args.pool.width);
    const View query = args.qkv.slice_cols(0, width), latent = args.qkv.slice_cols(width, pe);
    if (args.query_norm != nullptr) rms_norm(stream, query, args.query_norm, args.eps, query);
    rms_norm(stream, latent, args.latent_norm, args.eps, latent);
    rope(stream, table,
         {.x = args.qkv,
          .positions = args.positions,
          .num_heads = 1,
          .head_stride = args.qkv.cols,
          .offset = pe});
    kv_write(stream, args.pool, args.qkv.slice_cols(width, args.qkv.cols), args.slots);
}

}  // namespace aerie::kernels
