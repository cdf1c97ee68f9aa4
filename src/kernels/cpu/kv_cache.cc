#include "kernels/kv_cache.h"

#include <cstring>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_io.h"
#include "kernels/on_card.h"

namespace aerie::kernels {
namespace {

size_t slot_bytes(const KvPool& pool) {
    return static_cast<size_t>(pool.width) * size_of(pool.dtype);
}
std::byte* slot_at(const KvPool& pool, int64_t slot) {
    return static_cast<std::byte*>(pool.layer) + static_cast<size_t>(slot) * slot_bytes(pool);
}
void check_rows(const KvPool& pool, ConstView rows) {
    CHECK(rows.dtype == pool.dtype && rows.cols == pool.width, "rows [{}, {}] {}, pool {} {}",
          rows.rows, rows.cols, name_of(rows.dtype), pool.width, name_of(pool.dtype));
}

}  // namespace

void kv_write(Stream& stream, const KvPool& pool, ConstView rows, const int64_t* slots) {
    ON_CARD(stream, kv_write(stream, pool, rows, slots));
    check_rows(pool, rows);
    const size_t bytes = slot_bytes(pool);
    parallel_rows(stream, rows.rows, 2 * static_cast<int64_t>(bytes),
                  [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i)
                          if (slots[i] >= 0)
                              std::memcpy(slot_at(pool, slots[i]), rows.row(i), bytes);
                  });
}

}  // namespace aerie::kernels
