//go:build libtorch

// Attention on a device, and on a CPU where our kernels do not go (float64, odd head
// dimensions): one variable-length call for all sequences, without a mask.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "tensors.h"

namespace agt {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ---- which kernel ------------------------------------------------------------------
// Both are in libtorch's CUDA part. FlashAttention-2 (Dao 2023) takes 16 bits and
// groups of heads; the memory-efficient one (Rabe & Staats 2021) also float32 and any
// head dimension, and wants a key head for each query head. Neither takes float64.
enum class Kernel { flash, efficient, reference };

Kernel kernel_of(const Tensor &q, const Tensor &sinks) {
  if (sinks.defined() && q.scalar_type() == at::kFloat) return Kernel::reference;  // the efficient kernel pads its sums
  if (q.is_cpu() || q.scalar_type() == at::kDouble || q.size(2) % 8 != 0) return Kernel::reference;
  return q.scalar_type() != at::kFloat && q.size(2) <= 256 ? Kernel::flash : Kernel::efficient;
}

constexpr int64_t kCausalFromBottomRight = 2;  // of _efficient_attention_forward

std::optional<int64_t> left_of(Look l) {  // positions before its own that a token sees
  return l.window > 0 ? std::optional<int64_t>(l.window - 1) : std::nullopt;
}
std::optional<int64_t> window_of(Look l) { return l.window > 0 ? std::optional<int64_t>(l.window) : std::nullopt; }

// [N, Hkv, D] → [1, N, Hq, D]: each key head beside the query heads of its group.
Tensor spread(const Tensor &x, int64_t heads) {
  int64_t group = heads / x.size(1);
  if (group == 1) return x.unsqueeze(0);
  return x.unsqueeze(2).expand({x.size(0), x.size(1), group, x.size(2)}).reshape({1, x.size(0), heads, x.size(2)});
}
Tensor gather_heads(const Tensor &g, const Tensor &like) {  // the gradient of spread
  int64_t group = g.size(2) / like.size(1);
  if (group == 1) return g.squeeze(0);
  return g.view({like.size(0), like.size(1), group, like.size(2)}).sum(2, false, acc_type(g.scalar_type())).to(g.scalar_type());
}

// ---- reference -----------------------------------------------------------------------
// Boolean mask [len, ctx]: the i-th of the last `len` positions of a context of
// `ctx` sees itself and what is before it, at most `window` positions in all.
Tensor causal_mask(int64_t len, int64_t ctx, int64_t window, const Tensor &like) {
  auto opt = like.options().dtype(at::kLong);
  auto rows = at::arange(ctx - len, ctx, opt).unsqueeze(1), cols = at::arange(ctx, opt).unsqueeze(0);
  auto m = cols.le(rows);
  return window > 0 ? m.logical_and(cols.gt(rows - window)) : m;
}

// q [L, Hq, D], k and v [C, Hkv, D] with L the last positions of C.
Tensor attend(const Tensor &q, const Tensor &k, const Tensor &v, const Look &look) {
  int64_t len = q.size(0), ctx = k.size(0), window = look.window;
  bool plain = len == ctx && (window <= 0 || window >= ctx);
  std::optional<Tensor> mask;
  if (!plain && !(len == 1 && (window <= 0 || window >= ctx))) mask = causal_mask(len, ctx, window, q);
  auto o = at::scaled_dot_product_attention(q.transpose(0, 1).unsqueeze(0), k.transpose(0, 1).unsqueeze(0),
                                            v.transpose(0, 1).unsqueeze(0), mask, 0.0, plain, look.scale_of(q),
                                            q.size(1) != k.size(1));
  o = o.squeeze(0).transpose(0, 1);
  if (!look.sinks.defined()) return o;
  auto acc = look.sinks.scalar_type();
  auto s = at::matmul(q.transpose(0, 1).to(acc), spread(k, q.size(1)).squeeze(0).permute({1, 2, 0}).to(acc)) * look.scale_of(q);
  s = s.masked_fill(causal_mask(len, ctx, window, q).logical_not(), -std::numeric_limits<double>::infinity());
  auto share = at::sigmoid(at::logsumexp(s, -1) - look.sinks.unsqueeze(1)).t().unsqueeze(-1);  // of the keys
  return (o * share).to(q.scalar_type());
}

// In the form that the kernel of q's type wants on a device.
Tensor widened(const Tensor &x, const Tensor &q) {
  return q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf ? x : spread(x, q.size(1)).squeeze(0);
}

template <class F>
void each_sequence(const Spans &s, F f) {
  const int32_t *q = s.host_q.const_data_ptr<int32_t>(), *k = s.host_k.const_data_ptr<int32_t>();
  for (int64_t i = 0; i + 1 < s.host_q.size(0); i++)
    if (q[i + 1] > q[i]) f(q[i], q[i + 1] - q[i], k[i], k[i + 1] - k[i]);
}

// ---- one call for all sequences -----------------------------------------------------
// kept: what backward needs beside q, k, v and the result.
Tensor forward(const Tensor &q, const Tensor &k, const Tensor &v, const Spans &s, const Look &look, bool record, variable_list &kept) {
  switch (kernel_of(q, look.sinks)) {
    case Kernel::flash: {
      auto r = at::_flash_attention_forward(q, k, v, s.cu_q, s.cu_k, s.max_q, s.max_k, 0.0, /*is_causal=*/true,
                                            /*return_debug_mask=*/false, look.scale_of(q), left_of(look), std::nullopt);
      kept = {std::get<1>(r), std::get<2>(r), std::get<3>(r)};
      if (!look.sinks.defined()) return std::get<0>(r);
      Sunk sunk(std::get<0>(r), kept[0].t(), look.sinks);
      kept[0] = sunk.lse.t().contiguous();
      return sunk.out;
    }
    case Kernel::efficient: {
      auto r = at::_efficient_attention_forward(q.unsqueeze(0), spread(k, q.size(1)), spread(v, q.size(1)), std::nullopt, s.cu_q,
                                                s.cu_k, s.max_q, s.max_k, 0.0, kCausalFromBottomRight, record,
                                                look.scale_of(q), std::nullopt, window_of(look));
      kept = {std::get<1>(r), std::get<2>(r), std::get<3>(r)};
      return std::get<0>(r).squeeze(0);
    }
    case Kernel::reference: break;
  }
  Tensor out = at::empty_like(q), kw = widened(k, q), vw = widened(v, q);
  each_sequence(s, [&](int64_t q0, int64_t ql, int64_t k0, int64_t kl) {
    out.narrow(0, q0, ql).copy_(attend(q.narrow(0, q0, ql), kw.narrow(0, k0, kl), vw.narrow(0, k0, kl), look));
  });
  return out;
}

variable_list backward(const Tensor &g, const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &out, const Spans &s,
                       const Look &look, const variable_list &kept) {
  switch (kernel_of(q, look.sinks)) {
    case Kernel::flash: {
      auto r = at::_flash_attention_backward(g, q, k, v, out, kept[0], s.cu_q, s.cu_k, s.max_q, s.max_k, 0.0, true, kept[1], kept[2],
                                             look.scale_of(q), left_of(look), std::nullopt);
      return {std::get<0>(r), std::get<1>(r), std::get<2>(r),
              look.sinks.defined() ? sinks_gradient(look.sinks, kept[0].t(), out, g) : Tensor()};
    }
    case Kernel::efficient: {
      auto r = at::_efficient_attention_backward(g.unsqueeze(0), q.unsqueeze(0), spread(k, q.size(1)), spread(v, q.size(1)),
                                                 std::nullopt, out.unsqueeze(0), s.cu_q, s.cu_k, s.max_q, s.max_k, kept[0], 0.0,
                                                 kept[1], kept[2], kCausalFromBottomRight, false, look.scale_of(q), std::nullopt,
                                                 window_of(look));
      return {std::get<0>(r).squeeze(0), gather_heads(std::get<1>(r), k), gather_heads(std::get<2>(r), v), Tensor()};
    }
    case Kernel::reference: break;
  }
  Tensor kw = widened(k, q), vw = widened(v, q);
  Tensor dq = at::empty_like(q), dk = at::zeros_like(kw), dv = at::zeros_like(vw), ds;
  each_sequence(s, [&](int64_t q0, int64_t ql, int64_t k0, int64_t kl) {
    c10::AutoGradMode on(true);
    variable_list in{q.narrow(0, q0, ql), kw.narrow(0, k0, kl), vw.narrow(0, k0, kl)};
    if (look.sinks.defined()) in.push_back(look.sinks);
    for (auto &x : in) x = x.detach().requires_grad_(true);
    Look own = look;
    if (look.sinks.defined()) own.sinks = in[3];
    auto d = torch::autograd::grad({attend(in[0], in[1], in[2], own)}, in, {g.narrow(0, q0, ql)});
    c10::AutoGradMode off(false);
    dq.narrow(0, q0, ql).copy_(d[0]);
    dk.narrow(0, k0, kl).copy_(d[1]);
    dv.narrow(0, k0, kl).copy_(d[2]);
    if (look.sinks.defined()) ds = ds.defined() ? ds + d[3] : d[3];
  });
  return {dq, gather_heads(dk.unsqueeze(0), k), gather_heads(dv.unsqueeze(0), v), ds};
}

// The rows of x that the sequences read, each sequence's behind the other's.
Tensor rows_of(const Tensor &x, const Spans &s) { return s.gather.defined() ? x.index_select(0, s.gather) : x.contiguous(); }

// The gradient of rows_of: a row's shares are summed in the type of accumulation.
Tensor sum_rows(const Tensor &g, const Tensor &like, const Spans &s) {
  if (!s.gather.defined()) return g;
  auto acc = acc_type(g.scalar_type());
  return at::zeros(like.sizes(), like.options().dtype(acc)).index_add_(0, s.gather, g.to(acc)).to(like.scalar_type());
}

struct VarlenAttention : torch::autograd::Function<VarlenAttention> {
  static Tensor forward(AutogradContext *ctx, const Tensor &q0, const Tensor &k, const Tensor &v, const std::optional<Tensor> &sinks, const Spans &s,
                        const Look &look) {
    variable_list kept;
    Tensor q = q0.contiguous();
    Tensor out = agt::forward(q, rows_of(k, s), rows_of(v, s), s, look, true, kept);
    variable_list save{q, k, v, out, s.gather, s.cu_q, s.cu_k, s.host_q, s.host_k, sinks.value_or(Tensor())};
    save.insert(save.end(), kept.begin(), kept.end());
    ctx->save_for_backward(save);
    ctx->saved_data["sizes"] = std::vector<int64_t>{s.max_q, s.max_k, look.window};
    ctx->saved_data["scale"] = look.scale;
    return out;
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto x = ctx->get_saved_variables();
    auto sizes = ctx->saved_data["sizes"].toIntVector();
    Spans s{x[4], x[5], x[6], x[7], x[8], sizes[0], sizes[1]};
    Look look{sizes[2], ctx->saved_data["scale"].toDouble(), x[9]};
    variable_list kept(x.begin() + 10, x.end());
    auto d = agt::backward(grads[0].contiguous(), x[0], rows_of(x[1], s), rows_of(x[2], s), x[3], s, look, kept);
    return {d[0], sum_rows(d[1], x[1], s), sum_rows(d[2], x[2], s), d[3], Tensor(), Tensor()};
  }
};

// ---- the paged cache on a CPU --------------------------------------------------------
// One new token of each sequence.
void decode_rows(const Tensor &q, const Tensor &kpool, const Tensor &vpool, const PagedStep &p, Look look, Tensor &out) {
  std::vector<int> single;
  for (int i = 0; i < p.n; i++)
    if (p.segs[4 * i + 1] == 1) single.push_back(i);
  if (single.empty()) return;
  int64_t bs = kpool.size(1), hkv = kpool.size(2), dim = kpool.size(3), hq = q.size(1), group = hq / hkv;
  double scale = look.scale_of(q);
  dispatch(q, "cached_attention", [&](auto &kn, auto st, auto ac) {
    using S = decltype(st);
    using A = decltype(ac);
    const S *qp = in<S>(q), *kp = in<S>(kpool), *vp = in<S>(vpool);
    S *op = out_ptr<S>(out);
    at::parallel_for(0, int64_t(single.size()) * hkv, 1, [&](int64_t b, int64_t e) {
      std::vector<A> scratch;
      for (int64_t w = b; w < e; w++) {
        const int32_t *s = p.segs + 4 * single[w / hkv];
        int64_t ctx = s[2];
        PagedArgs a{p.blocks + s[3], bs, hkv, w % hkv, group, dim, look.window > 0 && ctx > look.window ? ctx - look.window : 0, ctx, scale,
                    nullptr};
        if (look.sinks.defined()) a.sinks = look.sinks.const_data_ptr<float>() + a.head * group;
        scratch.resize(2 * group * dim + group * ctx + dim);
        int64_t at = (int64_t(s[0]) * hq + a.head * group) * dim;
        kn.paged_decode(qp + at, kp, vp, a, scratch.data(), op + at);
      }
    });
  });
}

// Several new tokens of each sequence.
void prompt_rows(const Tensor &q, const Tensor &kpool, const Tensor &vpool, const PagedStep &p, Look look, Tensor &out) {
  int64_t bs = kpool.size(1), hkv = kpool.size(2), dim = kpool.size(3), hq = q.size(1), group = hq / hkv;
  double scale = look.scale_of(q);
  std::vector<std::pair<const int32_t *, PrefillArgs>> work;
  for (int i = 0; i < p.n; i++) {
    const int32_t *s = p.segs + 4 * i;
    if (s[1] <= 1) continue;
    // The last columns see most and go first: threads then end together.
    int64_t all = s[1] * group;
    for (int64_t c = (all - 1) / PREFILL_COLS * PREFILL_COLS; c >= 0; c -= PREFILL_COLS)
      for (int64_t h = 0; h < hkv; h++)
        work.push_back({s, {p.blocks + s[3], bs, hkv, h, group, dim, s[2], s[1], look.window, c, std::min<int64_t>(PREFILL_COLS, all - c), scale,
                            look.sinks.defined() ? look.sinks.const_data_ptr<float>() + h * group : nullptr}});
  }
  if (work.empty()) return;
  dispatch(q, "cached_attention", [&](auto &kn, auto st, auto) {
    using S = decltype(st);
    const S *qp = in<S>(q), *kp = in<S>(kpool), *vp = in<S>(vpool);
    S *op = out_ptr<S>(out);
    std::atomic<size_t> next{0};
    at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) {
      std::vector<float> scratch(PrefillArgs::scratch(dim));
      for (size_t w; (w = next++) < work.size();) {
        int64_t at = int64_t(work[w].first[0]) * hq * dim;
        kn.paged_prefill(qp + at, kp, vp, work[w].second, scratch.data(), op + at);
      }
    });
  });
}

}  // namespace

bool fused(const Tensor &q, const Tensor &k, const Tensor &v) {
  return native(q) && (q.scalar_type() == at::kFloat || q.scalar_type() == at::kBFloat16) && q.dim() == 3 && q.size(2) % 8 == 0 &&
         k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type();
}

Tensor varlen_attention(const Tensor &q, const Tensor &k, const Tensor &v, const Spans &s, Look look) {
  if (at::GradMode::is_enabled()) return VarlenAttention::apply(q, k, v, maybe(look.sinks), s, look);
  variable_list none;
  return forward(q.contiguous(), rows_of(k, s), rows_of(v, s), s, look, false, none);
}

Tensor cached_attention(const Tensor &q0, const Tensor &k0, const Tensor &v0, Tensor &kpool, Tensor &vpool, const Tensor &slots,
                        const PagedStep &p, Look look, const Spans *spans) {
  Tensor q = q0.contiguous();
  TORCH_CHECK(q.dim() == 3 && kpool.dim() == 4 && kpool.sizes() == vpool.sizes() && q.size(2) == kpool.size(3) && kpool.size(2) > 0 &&
                  q.size(1) % kpool.size(2) == 0 && k0.defined() == v0.defined(),
              "q is ", q.sizes(), ", the caches are ", kpool.sizes(), " and ", vpool.sizes());
  for (const Tensor *t : std::initializer_list<const Tensor *>{&k0, &v0})
    TORCH_CHECK(!t->defined() || (t->dim() == 3 && t->size(0) == q.size(0) && t->size(1) == kpool.size(2) && t->size(2) == kpool.size(3)), "q is ",
                q.sizes(), ", k or v is ", t->sizes(), ", the caches are ", kpool.sizes());
  for (const Tensor *t : std::initializer_list<const Tensor *>{&k0, &v0, &kpool, &vpool})
    TORCH_CHECK(!t->defined() || t->scalar_type() == q.scalar_type(), "q is ", q.scalar_type(), ", one of k, v and the caches is ", t->scalar_type());
  TORCH_CHECK(kpool.is_contiguous() && vpool.is_contiguous(), "the caches are not contiguous");
  int64_t hkv = kpool.size(2), dim = kpool.size(3);
  Tensor kf = kpool.view({-1, hkv, dim}), vf = vpool.view({-1, hkv, dim});
  if (k0.defined()) {  // else they are in the cache already
    kf.index_copy_(0, slots, k0);
    vf.index_copy_(0, slots, v0);
  }
  if (spans && !p.decoding) return varlen_attention(q, kf, vf, *spans, look);
  Tensor out = at::empty_like(q);
  if (p.decoding) {
    const int64_t need = gpu::decode_parts(p.decoding->rows.numel(), q.size(1), q.size(2), p.decoding->longest, look.window);
    Tensor parts = at::empty({need}, q.options().dtype(at::kFloat));
    gpu::decode(q, kpool, vpool, *p.decoding, look, parts, out);
    if (spans) out.index_copy_(0, p.prompts, varlen_attention(q.index_select(0, p.prompts), kf, vf, *spans, look));
    return out;
  }
  decode_rows(q, kpool, vpool, p, look, out);
  prompt_rows(q, kpool, vpool, p, look, out);
  return out;
}

Tensor tree_attention(const Tensor &q, const Tensor &k, const Tensor &v, const int32_t *nodes, int n, Look look,
                      const Spans *spans) {
  TORCH_CHECK(q.dim() == 3 && k.dim() == 3 && k.sizes() == v.sizes() && k.size(0) == q.size(0) && k.size(2) == q.size(2) &&
                  k.size(1) > 0 && q.size(1) % k.size(1) == 0,
              "q is ", q.sizes(), ", k is ", k.sizes(), ", v is ", v.sizes(), "; want [T, Hq, D] and [T, Hkv, D] twice");
  int64_t rows = 0;
  for (int i = 0; i < n; i++) {
    TORCH_CHECK(nodes[3 * i] == rows && nodes[3 * i + 1] >= 0 && nodes[3 * i + 2] < i, "node ", i, " (start ", nodes[3 * i],
                ", ", nodes[3 * i + 1], " tokens, parent ", nodes[3 * i + 2], ") does not follow the one before");
    rows += nodes[3 * i + 1];
  }
  TORCH_CHECK(rows == q.size(0), "the nodes hold ", rows, " tokens, q is ", q.sizes());
  if (rows == 0) return q.clone();  // of no tokens, and still part of the graph
  return spans ? varlen_attention(q, k, v, *spans, look) : tree_kernel(q, k, v, nodes, n, look);
}

}  // namespace agt
