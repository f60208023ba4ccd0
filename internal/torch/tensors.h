// What shim.cpp and tree.cpp share.
#pragma once
#include <ATen/ATen.h>

#include "kernels.h"

namespace agt {

inline at::ScalarType acc_type(at::ScalarType t) { return t == at::kDouble ? at::kDouble : at::kFloat; }

// dispatch runs f(table, typed zero, typed zero of the accumulation type) for x's
// dtype: one place for the three types.
template <class F>
void dispatch(const at::Tensor &x, const char *what, F f) {
  switch (x.scalar_type()) {
    case at::kBFloat16: return f(kernels().b, bf16{}, float{});
    case at::kFloat: return f(kernels().f, float{}, float{});
    case at::kDouble: return f(kernels().d, double{}, double{});
    default: TORCH_CHECK(false, what, ": dtype ", x.scalar_type(), " is not float64, float32 or bfloat16");
  }
}
template <class S>
const S *in(const at::Tensor &t) { return static_cast<const S *>(t.const_data_ptr()); }
template <class S>
S *out_ptr(at::Tensor &t) { return static_cast<S *>(t.data_ptr()); }

// q [T, Hq, D], k and v [T, Hkv, D], on a CPU in float32 or bfloat16, D a multiple of
// 8: attention over a packed tree (nodes: triples of start, length and parent, checked
// by the caller), and its gradient.
at::Tensor tree_kernel(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const int32_t *nodes, int n, int64_t window);

}  // namespace agt
