#pragma once

#include "kernels/qkv.h"

namespace aerie::kernels::cuda {

bool finishes_qkv(const RopeTable& table, const QkvArgs& args);  // else the operations one by one
void finish_qkv(Stream& stream, const RopeTable& table, const QkvArgs& args);

}  // namespace aerie::kernels::cuda
