//go:build libtorch

// Recurrent layers over runs of tokens: the nodes of a training tree, or what a step adds to
// each sequence. Libtorch's operations, so that autograd has the gradients; on a CPU the gated
// delta rule has kernels of our own (delta.cpp).
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tensors.h"

namespace agt {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// x of (I + a)·x = b, where what counts of a is strictly below the diagonal. Results
// are contiguous, forward and backward, on every device.
struct UnitSolve : torch::autograd::Function<UnitSolve> {
  static Tensor solved(const Tensor &a, const Tensor &b, bool upper) {
    return at::linalg_solve_triangular(a, b, upper, /*left=*/true, /*unitriangular=*/true).contiguous();
  }
  static Tensor forward(AutogradContext *ctx, const Tensor &a, const Tensor &b) {
    Tensor x = solved(a, b, false);
    ctx->save_for_backward({a, x});
    return x;
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    Tensor db = solved(saved[0].transpose(-1, -2), grads[0], true);
    return {at::matmul(db, saved[1].transpose(-1, -2)).tril(-1).neg(), db};
  }
};

// libtorch's own has another gradient on some devices than on a CPU.
Tensor swish(const Tensor &x) { return x * at::sigmoid(x); }

Tensor l2_normed(const Tensor &x) { return x * at::rsqrt((x * x).sum(-1, true) + 1e-6); }

// [T, heads, …] → [chunks, heads, size, …], zeros where a chunk has no token.
Tensor in_chunks(const Tensor &x, const Chunks &c) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = c.count * c.size;
  Tensor y = at::zeros(shape, x.options()).index_copy(0, c.place, x);
  shape.insert(shape.begin(), c.count);
  shape[1] = c.size;
  return y.view(shape).transpose(1, 2).contiguous();
}

}  // namespace

Tensor causal_conv(const Tensor &x, const Tensor &weight, const Tensor &bias, bool activated, const Tensor &index, const Kept &kept) {
  TORCH_CHECK(x.dim() == 2 && weight.dim() == 3 && weight.size(0) == x.size(1) && weight.size(1) == 1 && weight.size(2) > 1 &&
                  index.numel() == x.size(0) * (weight.size(2) - 1),
              "x is ", x.sizes(), ", the weight is ", weight.sizes(), ", the index is ", index.sizes());
  int64_t rows = x.size(0), channels = x.size(1), before = weight.size(2) - 1;
  auto acc = acc_type(x.scalar_type());
  Tensor pool = kept.pool, earlier;
  if (pool.defined()) {
    TORCH_CHECK(pool.dim() == 3 && pool.size(1) == before && pool.size(2) == channels, "the states are ", pool.sizes());
    earlier = pool.index_select(0, kept.from).view({-1, channels});
  } else {
    earlier = at::zeros({1, channels}, x.options());
  }
  Tensor all = at::cat({x, earlier}), w = weight.view({channels, before + 1}).to(acc);
  Tensor y = x.to(acc) * w.select(1, before);
  for (int64_t j = before - 1; j >= 0; j--)
    y = y + all.index_select(0, index.narrow(0, j * rows, rows)).to(acc) * w.select(1, j);
  if (bias.defined()) y = y + bias.to(acc);
  if (activated) y = swish(y);
  if (pool.defined() && kept.into.numel() > 0)
    pool.index_copy_(0, kept.into, all.index_select(0, kept.last).view({-1, before, channels}));
  return y.to(x.scalar_type());
}

// Yang et al. 2024, "Gated Delta Networks", section 3.3: S_t = S_{t−1}·α_t(I − β_t k_t k_tᵀ) +
// β_t v_t k_tᵀ, a chunk at a time. Within a chunk the corrections v − S·k of all its tokens
// solve a triangular system; chunks of one level, all over the tree, are computed together.
Tensor gated_delta(const Tensor &qkv, const Tensor &b, const Tensor &a, const Tensor &a_log, const Tensor &dt_bias, const DeltaHeads &h,
                   const DeltaRuns &runs, const Chunks &c, const Kept &kept) {
  int64_t rows = qkv.size(0), keys = h.key_heads * h.key_dim, values = h.value_heads * h.value_dim;
  TORCH_CHECK(qkv.dim() == 2 && qkv.size(1) == 2 * keys + values && h.value_heads % h.key_heads == 0 &&
                  b.sizes() == at::IntArrayRef({rows, h.value_heads}) && a.sizes() == b.sizes(),
              "q, k and v are ", qkv.sizes(), ", b is ", b.sizes(), ", a is ", a.sizes());
  if (delta_fused(qkv)) return delta_kernel(qkv, b, a, a_log, dt_bias, h, runs, kept.pool);
  TORCH_CHECK(c.count > 0 && c.place.numel() == rows, "not all of ", rows, " tokens are in chunks");
  auto acc = acc_type(qkv.scalar_type());
  auto parts = qkv.to(acc).split_with_sizes({keys, keys, values}, 1);
  Tensor q = l2_normed(parts[0].reshape({rows, h.key_heads, h.key_dim})) / std::sqrt(double(h.key_dim));
  Tensor k = l2_normed(parts[1].reshape({rows, h.key_heads, h.key_dim}));
  Tensor v = parts[2].reshape({rows, h.value_heads, h.value_dim});
  if (int64_t group = h.value_heads / h.key_heads; group > 1) q = q.repeat_interleave(group, 1), k = k.repeat_interleave(group, 1);
  Tensor beta = at::sigmoid(b).to(acc).unsqueeze(-1);
  Tensor decay = (a_log.to(acc).exp() * at::softplus(a.to(acc) + dt_bias.to(acc))).neg();  // of the log of the state

  Tensor kb = in_chunks(k * beta, c), vb = in_chunks(v * beta, c);
  q = in_chunks(q, c), k = in_chunks(k, c);
  Tensor sum = in_chunks(decay, c).cumsum(-1);  // [chunks, heads, size]
  Tensor later = at::ones({c.size, c.size}, q.options().dtype(at::kBool)).triu(1);
  Tensor between = (sum.unsqueeze(-1) - sum.unsqueeze(-2)).masked_fill(later, -std::numeric_limits<double>::infinity()).exp();
  Tensor attention = at::matmul(q, k.transpose(-1, -2)) * between;
  Tensor grown = sum.exp().unsqueeze(-1), end = sum.narrow(-1, c.size - 1, 1);
  Tensor right = at::cat({vb, kb * grown}, -1);
  if (c.size > 1)
    right = at::GradMode::is_enabled() ? UnitSolve::apply(at::matmul(kb, k.transpose(-1, -2)) * between, right)
                                       : UnitSolve::solved(at::matmul(kb, k.transpose(-1, -2)) * between, right, false);
  auto solved = right.split_with_sizes({h.value_dim, h.key_dim}, -1);
  q = q * grown, k = (k * (end - sum).exp().unsqueeze(-1)).transpose(-1, -2);
  Tensor whole = end.exp().unsqueeze(-1);

  Tensor state;
  std::vector<Tensor> outs, states;
  for (int64_t level = 0; level + 1 < int64_t(c.levels.size()); level++) {
    int64_t at = c.levels[level], n = c.levels[level + 1] - at;
    auto here = [&](const Tensor &x) { return x.narrow(0, at, n); };
    if (level > 0)
      state = state.index_select(0, here(c.parents));
    else if (kept.pool.defined())
      state = kept.pool.index_select(0, kept.from).to(acc);
    else
      state = at::zeros({n, h.value_heads, h.key_dim, h.value_dim}, q.options());
    Tensor fresh = here(solved[0]) - at::matmul(here(solved[1]), state);
    outs.push_back(at::matmul(here(q), state) + at::matmul(here(attention), fresh));
    state = state * here(whole) + at::matmul(here(k), fresh);
    if (kept.pool.defined()) states.push_back(state);
  }
  if (kept.pool.defined() && kept.into.numel() > 0)
    Tensor(kept.pool).index_copy_(0, kept.into, at::cat(states).index_select(0, kept.last).to(kept.pool.scalar_type()));
  Tensor out = at::cat(outs).transpose(1, 2).reshape({c.count * c.size, values});
  return out.index_select(0, c.place).to(qkv.scalar_type());
}

Tensor gated_rms_norm(const Tensor &x, const Tensor &w, const Tensor &gate, double eps) {
  auto acc = acc_type(x.scalar_type());
  Tensor y = x.to(acc), z = gate.reshape(x.sizes()).to(acc);
  y = (y * at::rsqrt((y * y).mean(-1, true) + eps)).to(x.scalar_type()) * w;
  return (y.to(acc) * swish(z)).to(x.scalar_type());
}

}  // namespace agt
