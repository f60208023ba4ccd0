//go:build libtorch

// The attention kernels of libtorch's CUDA part, for variable lengths: their demands on
// the arguments, and their results, computed sequence by sequence on the CPU.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>

#include "device.h"

namespace testdevice {
namespace {

using at::Tensor;
using Maybe = std::optional<Tensor>;

Tensor attend(const Tensor &q, const Tensor &k, const Tensor &v, int64_t window, std::optional<double> scale) {
  int64_t len = q.size(0), ctx = k.size(0);
  bool plain = len == ctx && (window <= 0 || window >= ctx);
  std::optional<Tensor> mask;
  if (!plain && !(len == 1 && (window <= 0 || window >= ctx))) {
    auto opt = q.options().dtype(at::kLong);
    auto rows = at::arange(ctx - len, ctx, opt).unsqueeze(1), cols = at::arange(ctx, opt).unsqueeze(0);
    mask = window > 0 ? cols.le(rows).logical_and(cols.gt(rows - window)) : cols.le(rows);
  }
  auto o = at::scaled_dot_product_attention(q.transpose(0, 1).unsqueeze(0), k.transpose(0, 1).unsqueeze(0),
                                            v.transpose(0, 1).unsqueeze(0), mask, 0.0, plain, scale, q.size(1) != k.size(1));
  return o.squeeze(0).transpose(0, 1);
}

// The scores of a sequence, −∞ where a query does not see a key: [H, len, ctx], in float32.
Tensor scores(const Tensor &q, const Tensor &k, int64_t window, std::optional<double> scale) {
  int64_t len = q.size(0), ctx = k.size(0), group = q.size(1) / k.size(1);
  auto opt = q.options().dtype(at::kLong);
  auto rows = at::arange(ctx - len, ctx, opt).unsqueeze(1), cols = at::arange(ctx, opt).unsqueeze(0);
  auto seen = window > 0 ? cols.le(rows).logical_and(cols.gt(rows - window)) : cols.le(rows);
  auto s = at::matmul(q.to(at::kFloat).transpose(0, 1), k.to(at::kFloat).repeat_interleave(group, 1).permute({1, 2, 0}));
  s = s * scale.value_or(1 / std::sqrt(double(q.size(2))));
  return s.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
}

// One call: [T, H, D] on the host, and how the sequences lie.
struct Call {
  Open q, k, v, cu_q, cu_k;
  int64_t max_q, max_k, window;
  std::optional<double> scale;

  template <class F>
  void each(F f) const {
    const int32_t *a = cu_q.host.const_data_ptr<int32_t>(), *b = cu_k.host.const_data_ptr<int32_t>();
    int64_t n = cu_q.host.numel() - 1;
    TORCH_CHECK(cu_k.host.numel() == n + 1 && a[0] == 0 && b[0] == 0 && a[n] == q.host.size(0) && b[n] == k.host.size(0),
                "the sequences do not tile the rows");
    for (int64_t i = 0; i < n; i++) {
      TORCH_CHECK(a[i + 1] - a[i] <= max_q && b[i + 1] - b[i] <= max_k, "a sequence is longer than the longest");
      if (a[i + 1] > a[i]) f(a[i], a[i + 1] - a[i], b[i], b[i + 1] - b[i]);
    }
  }
  Tensor forward() const {
    Tensor out = at::empty_like(q.host);
    each([&](int64_t q0, int64_t ql, int64_t k0, int64_t kl) {
      out.narrow(0, q0, ql).copy_(attend(q.host.narrow(0, q0, ql), k.host.narrow(0, k0, kl), v.host.narrow(0, k0, kl), window, scale));
    });
    return out;
  }
  // log Σ exp of each query's scores: [H, T].
  Tensor sums() const {
    Tensor lse = at::empty({q.host.size(1), q.host.size(0)}, q.host.options().dtype(at::kFloat));
    each([&](int64_t q0, int64_t ql, int64_t k0, int64_t kl) {
      lse.narrow(1, q0, ql).copy_(at::logsumexp(scores(q.host.narrow(0, q0, ql), k.host.narrow(0, k0, kl), window, scale), -1));
    });
    return lse;
  }
  // As the kernel computes it from a result and sums that need not be those of forward():
  // P = exp(S − lse), dS = P·(dP − Σ dO·O).
  std::vector<Tensor> backward_of(const Tensor &g, const Tensor &out, const Tensor &lse) const {
    Tensor dq = at::empty_like(q.host), dk = at::zeros_like(k.host), dv = at::zeros_like(v.host);
    int64_t group = q.host.size(1) / k.host.size(1);
    double by = scale.value_or(1 / std::sqrt(double(q.host.size(2))));
    each([&](int64_t q0, int64_t ql, int64_t k0, int64_t kl) {
      auto wide = [&](const Tensor &x) { return x.to(at::kFloat).transpose(0, 1); };  // [H, T, D]
      Tensor qs = wide(q.host.narrow(0, q0, ql)), ks = wide(k.host.narrow(0, k0, kl).repeat_interleave(group, 1)),
             vs = wide(v.host.narrow(0, k0, kl).repeat_interleave(group, 1)), go = wide(g.narrow(0, q0, ql)), os = wide(out.narrow(0, q0, ql));
      Tensor s = scores(q.host.narrow(0, q0, ql), k.host.narrow(0, k0, kl), window, scale);
      Tensor p = (s - lse.narrow(1, q0, ql).unsqueeze(-1)).exp();
      Tensor ds = p * (at::matmul(go, vs.transpose(1, 2)) - (go * os).sum(-1, true)) * by;
      auto summed = [&](const Tensor &x) { return x.transpose(0, 1).reshape({kl, -1, group, q.host.size(2)}).sum(2); };
      dq.narrow(0, q0, ql).copy_(at::matmul(ds, ks).transpose(0, 1));
      dk.narrow(0, k0, kl).copy_(summed(at::matmul(ds.transpose(1, 2), qs)));
      dv.narrow(0, k0, kl).copy_(summed(at::matmul(p.transpose(1, 2), go)));
    });
    return {dq, dk, dv};
  }
  std::vector<Tensor> backward(const Tensor &g) const {
    Tensor dq = at::empty_like(q.host), dk = at::zeros_like(k.host), dv = at::zeros_like(v.host);
    auto keys = c10::impl::tls_local_dispatch_key_set();  // a kernel is below autograd, which is wanted here
    keys.excluded_ = keys.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
    c10::impl::ForceDispatchKeyGuard above(keys);
    each([&](int64_t q0, int64_t ql, int64_t k0, int64_t kl) {
      c10::AutoGradMode on(true);
      std::vector<Tensor> in{q.host.narrow(0, q0, ql), k.host.narrow(0, k0, kl), v.host.narrow(0, k0, kl)};
      for (auto &x : in) x = x.detach().requires_grad_(true);
      auto d = torch::autograd::grad({attend(in[0], in[1], in[2], window, scale)}, in, {g.narrow(0, q0, ql)});
      c10::AutoGradMode off(false);
      dq.narrow(0, q0, ql).copy_(d[0]);
      dk.narrow(0, k0, kl).copy_(d[1]);
      dv.narrow(0, k0, kl).copy_(d[2]);
    });
    return {dq, dk, dv};
  }
};

void check_lengths(const Tensor &q, const Tensor &cu_q, const Tensor &cu_k) {
  for (const Tensor *c : {&cu_q, &cu_k})
    TORCH_CHECK(c->is_privateuseone() && c->scalar_type() == at::kInt && c->is_contiguous() && c->dim() == 1,
                "cumulative lengths are int32 on the device");
  TORCH_CHECK(q.stride(-1) == 1, "the last dimension is contiguous");
}

// ---- FlashAttention-2 -------------------------------------------------------------------
void check_flash(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &cu_q, const Tensor &cu_k, bool causal) {
  TORCH_CHECK(q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16, "flash attention takes fp16 and bf16");
  for (const Tensor *x : {&q, &k, &v})
    TORCH_CHECK(x->is_privateuseone() && x->scalar_type() == q.scalar_type() && x->dim() == 3 && x->stride(-1) == 1 &&
                    x->size(2) == q.size(2),
                "q, k and v are [rows, heads, dim] of one type on the device");
  TORCH_CHECK(q.size(2) % 8 == 0 && q.size(2) <= 256 && q.size(1) % k.size(1) == 0 && causal, "heads of ", q.size(2));
  check_lengths(q, cu_q, cu_k);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> flash_forward(const Tensor &q, const Tensor &k, const Tensor &v, const Maybe &cu_q,
                                                                 const Maybe &cu_k, c10::SymInt max_q, c10::SymInt max_k, double dropout,
                                                                 bool causal, bool debug, std::optional<double> scale,
                                                                 std::optional<c10::SymInt> left, std::optional<c10::SymInt>,
                                                                 const Maybe &, const Maybe &) {
  check_flash(q, k, v, *cu_q, *cu_k, causal);
  calls[0]++;
  Call c{Open(q), Open(k), Open(v), Open(*cu_q), Open(*cu_k), max_q.expect_int(), max_k.expect_int(), left ? left->expect_int() + 1 : 0, scale};
  auto state = q.options().dtype(at::kLong);
  return {placed(c.forward()), placed(c.sums()), at::zeros({2}, state),
          at::zeros({}, state), Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> flash_backward(const Tensor &g, const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &out,
                                                  const Tensor &lse, const Tensor &cu_q, const Tensor &cu_k, c10::SymInt max_q,
                                                  c10::SymInt max_k, double, bool causal, const Tensor &state, const Tensor &unused,
                                                  std::optional<double> scale, std::optional<c10::SymInt> left, std::optional<c10::SymInt>) {
  check_flash(q, k, v, cu_q, cu_k, causal);
  TORCH_CHECK(lse.is_privateuseone() && lse.size(0) == q.size(1) && lse.size(1) == q.size(0) && state.numel() == 2 && out.sizes() == q.sizes() &&
                  g.sizes() == q.sizes() && g.stride(-1) == 1 && unused.dim() == 0,
              "what the forward pass gave does not come back");
  calls[0]++;
  Call c{Open(q), Open(k), Open(v), Open(cu_q), Open(cu_k), max_q.expect_int(), max_k.expect_int(), left ? left->expect_int() + 1 : 0, scale};
  Open grad(g), result(out), sums(lse);
  // Of its own result to the bit what the CPU gives; sinks come with another.
  auto d = at::equal(sums.host, c.sums()) ? c.backward(grad.host) : c.backward_of(grad.host, result.host, sums.host);
  return {placed(d[0]), placed(d[1]), placed(d[2])};
}

// ---- memory-efficient attention ------------------------------------------------------------
// Its key heads are spread over the query heads by the caller; attend() of one key head a
// query head is the same as of a group.
void check_efficient(const Tensor &q, const Tensor &k, const Tensor &v, const Maybe &cu_q, const Maybe &cu_k, int64_t mask) {
  for (const Tensor *x : {&q, &k, &v})
    TORCH_CHECK(x->is_privateuseone() && x->scalar_type() == q.scalar_type() && x->dim() == 4 && x->size(0) == 1 && x->stride(-1) == 1 &&
                    x->size(2) == q.size(2),
                "q, k and v are [1, rows, heads, dim] of one type, with as many heads, on the device");
  TORCH_CHECK(mask == 2 && cu_q && cu_k, "causal from the bottom right, with lengths");
  TORCH_CHECK(q.size(3) % 4 == 0, "heads of ", q.size(3));
  check_lengths(q, *cu_q, *cu_k);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt> efficient_forward(
    const Tensor &q, const Tensor &k, const Tensor &v, const Maybe &bias, const Maybe &cu_q, const Maybe &cu_k,
    std::optional<c10::SymInt> max_q, std::optional<c10::SymInt> max_k, double, int64_t mask, bool with_lse, std::optional<double> scale,
    const Maybe &, std::optional<int64_t> window) {
  check_efficient(q, k, v, cu_q, cu_k, mask);
  TORCH_CHECK(!bias && max_q && max_k, "no bias, and the longest lengths");
  calls[1]++;
  Call c{Open(q.squeeze(0)), Open(k.squeeze(0)), Open(v.squeeze(0)), Open(*cu_q), Open(*cu_k), max_q->expect_int(), max_k->expect_int(),
         window.value_or(0), scale};
  auto state = q.options().dtype(at::kLong);
  return {placed(c.forward()).unsqueeze(0), at::zeros({1, q.size(2), with_lse ? q.size(1) : 0}, q.options().dtype(at::kFloat)),
          at::zeros({}, state), at::zeros({}, state), *max_q, *max_k};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_backward(const Tensor &g, const Tensor &q, const Tensor &k, const Tensor &v,
                                                              const Maybe &, const Tensor &out, const Maybe &cu_q, const Maybe &cu_k,
                                                              c10::SymInt max_q, c10::SymInt max_k, const Tensor &lse, double,
                                                              const Tensor &seed, const Tensor &offset, int64_t mask, bool,
                                                              std::optional<double> scale, std::optional<int64_t>, std::optional<int64_t> window,
                                                              bool) {
  check_efficient(q, k, v, cu_q, cu_k, mask);
  TORCH_CHECK(lse.size(2) >= q.size(1) && out.sizes() == q.sizes() && g.sizes() == q.sizes() && seed.dim() == 0 && offset.dim() == 0,
              "what the forward pass gave does not come back");
  calls[1]++;
  Call c{Open(q.squeeze(0)), Open(k.squeeze(0)), Open(v.squeeze(0)), Open(*cu_q), Open(*cu_k), max_q.expect_int(), max_k.expect_int(),
         window.value_or(0), scale};
  Open grad(g.squeeze(0));
  auto d = c.backward(grad.host);
  return {placed(d[0]).unsqueeze(0), placed(d[1]).unsqueeze(0), placed(d[2]).unsqueeze(0), Tensor()};
}

}  // namespace

void register_attention(torch::Library &aten) {
  aten.impl("_flash_attention_forward", flash_forward);
  aten.impl("_flash_attention_backward", flash_backward);
  aten.impl("_efficient_attention_forward", efficient_forward);
  aten.impl("_efficient_attention_backward", efficient_backward);
}

}  // namespace testdevice
