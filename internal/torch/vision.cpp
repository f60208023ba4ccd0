//go:build libtorch

// Attention of an image's patches: all to all within a block, without a mask.
#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "tensors.h"

namespace agt {
namespace {

using at::Tensor;

// q, k and v [blocks, H, L, D]. libtorch's fused kernel where there is one; elsewhere the
// formula, so that any device gives the same bits.
Tensor see_all(const Tensor &q, const Tensor &k, const Tensor &v) {
  if (native(q) || q.is_cuda()) return at::scaled_dot_product_attention(q, k, v);
  auto acc = acc_type(q.scalar_type());
  auto p = at::softmax(at::matmul(q.to(acc), k.to(acc).transpose(-2, -1)) / std::sqrt(double(q.size(3))), -1);
  return at::matmul(p, v.to(acc)).to(q.scalar_type());
}

}  // namespace

Tensor block_attention(const Tensor &q, const Tensor &k, const Tensor &v, const int64_t *lengths, int n) {
  TORCH_CHECK(q.dim() == 3 && k.sizes() == q.sizes() && v.sizes() == q.sizes(), "q is ", q.sizes(), ", k is ", k.sizes(), ", v is ",
              v.sizes(), "; want [patches, heads, D] three times");
  int64_t rows = 0;
  for (int i = 0; i < n; i++) {
    TORCH_CHECK(lengths[i] > 0, "block ", i, " has ", lengths[i], " patches");
    rows += lengths[i];
  }
  TORCH_CHECK(rows == q.size(0), "the blocks hold ", rows, " patches, q is ", q.sizes());
  std::vector<Tensor> parts;
  for (int64_t i = 0, at = 0; i < n;) {  // neighbours of one length go together
    int64_t e = i;
    while (e < n && lengths[e] == lengths[i]) e++;
    int64_t count = e - i, len = lengths[i];
    auto blocks = [&](const Tensor &x) { return x.narrow(0, at, count * len).reshape({count, len, x.size(1), x.size(2)}).transpose(1, 2); };
    parts.push_back(see_all(blocks(q), blocks(k), blocks(v)).transpose(1, 2).reshape({count * len, q.size(1), q.size(2)}));
    at += count * len;
    i = e;
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, 0);
}

}  // namespace agt
