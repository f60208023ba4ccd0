//go:build libtorch

// See shim.h. Grad mode, threads and errors are per OS thread in libtorch;
// torch.go calls everything from one locked thread per worker.
#include "shim.h"

#include "gpu.h"
#include "own_panels.h"
#include "products.h"
#include "tensors.h"
#include "upload.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <c10/util/Flags.h>
#include <dlfcn.h>
#include <malloc.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

C10_DECLARE_int(caffe2_log_level);

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

Tensor &T(agt_tensor t) { return *reinterpret_cast<Tensor *>(t); }
std::optional<agt::Spans> spans_of(const agt_spans *s) {
  if (!s) return std::nullopt;
  return agt::Spans{s->gather ? T(s->gather) : Tensor(), T(s->cu_q), T(s->cu_k), T(s->host_q), T(s->host_k), s->max_q, s->max_k};
}
agt::Kept kept_of(const agt_kept &k) {
  if (!k.pool) return {};
  return {T(k.pool), T(k.from), T(k.into), k.last ? T(k.last) : Tensor()};
}
agt_tensor wrap(Tensor t) { return reinterpret_cast<agt_tensor>(new Tensor(std::move(t))); }

std::vector<Tensor> list(agt_tensor *xs, int n) {  // detached: optimisers record nothing
  std::vector<Tensor> out;
  for (int i = 0; i < n; i++) out.push_back(T(xs[i]).detach());
  return out;
}

int fail(char **err, const char *what) {
  std::string s(what ? what : "unknown error");
  // libtorch's first line says what is wrong; the rest is a backtrace, the
  // dispatcher's tables, or general advice.
  auto end = s.find('\n');
  if (end != std::string::npos) s.resize(end);
  *err = strdup(s.c_str());
  return 1;
}

template <class F>
int guard(char **err, F f) {
  try {
    f();
    return 0;
  } catch (const c10::Error &e) {
    return fail(err, e.what_without_backtrace());
  } catch (const std::exception &e) {
    return fail(err, e.what());
  } catch (...) {
    return fail(err, "unknown C++ exception");
  }
}

using agt::device_of;
int number_of(at::Device d) { return d.is_cuda() ? d.index() : d.is_privateuseone() ? agt::kTestDevice : -1; }
c10::DeviceAllocator *allocator_of(int device) { return c10::getDeviceAllocator(device_of(device).type()); }
using agt::acc_type;
Tensor sinks_of(agt_tensor sinks, const Tensor &q) {
  if (!sinks) return Tensor();
  TORCH_CHECK(q.dim() == 3 && T(sinks).sizes() == at::IntArrayRef({q.size(1)}), "sinks are ", T(sinks).sizes(), ", q is ", q.sizes());
  return T(sinks).to(acc_type(q.scalar_type()));
}
using agt::dispatch;
using agt::in;
using agt::native;
using agt::out_ptr;

// ---- rotary embedding -------------------------------------------------------
// x [T, H, D], cos and sin [T, R/2] in x's accumulation type, R ≤ D: the first R
// dimensions are turned. The pairs are (i, i + R/2), as in Hugging Face's Llama
// (rotate_half), or neighbours.
Tensor rope_apply(const Tensor &x0, const Tensor &cos0, const Tensor &sin0, bool pairs, double sign) {
  Tensor x = x0.contiguous(), cos = cos0.contiguous(), sin = sin0.contiguous();
  TORCH_CHECK(x.dim() == 3 && cos.dim() == 2 && cos.sizes() == sin.sizes() && cos.size(0) == x.size(0) &&
                  cos.size(1) * 2 <= x.size(2),
              "x is ", x.sizes(), ", cos is ", cos.sizes(), ", sin is ", sin.sizes(),
              "; want [tokens, heads, dim] and [tokens, dim/2 at most] twice");
  // The kernels read raw memory: a type they do not expect would be read past its end.
  TORCH_CHECK(cos.scalar_type() == acc_type(x.scalar_type()) && sin.scalar_type() == cos.scalar_type(), "x is ",
              x.scalar_type(), ", cos is ", cos.scalar_type(), ", sin is ", sin.scalar_type(), "; want cos and sin in ",
              acc_type(x.scalar_type()));
  int64_t half = cos.size(1), dim = x.size(2);
  if (agt::gpu::have(x) && dim % 2 == 0) {
    Tensor y = at::empty_like(x);
    agt::gpu::turn(x, cos, sin, pairs, sign, y);
    return y;
  }
  if (native(x)) {
    Tensor y = at::empty_like(x);
    dispatch(x, "rope", [&](auto &kn, auto st, auto ac) {
      using S = decltype(st);
      using A = decltype(ac);
      int64_t row = x.size(1) * dim;
      const S *xp = in<S>(x);
      const A *cp = in<A>(cos), *sp = in<A>(sin);
      S *yp = out_ptr<S>(y);
      at::parallel_for(0, x.size(0), 16, [&](int64_t b, int64_t e) {
        kn.rope(xp + b * row, cp + b * half, sp + b * half, yp + b * row, e - b, x.size(1), dim, half, pairs, A(sign));
      });
    });
    return y;
  }
  auto acc = x.narrow(2, 0, 2 * half).to(acc_type(x.scalar_type()));
  auto c = cos.unsqueeze(1), s = sin.unsqueeze(1) * sign;
  Tensor turned;
  if (pairs) {
    auto p = acc.view({x.size(0), x.size(1), half, 2});
    auto a = p.select(3, 0), z = p.select(3, 1);
    turned = at::stack({a * c - z * s, z * c + a * s}, -1).flatten(2);
  } else {
    auto p = acc.chunk(2, -1);
    turned = at::cat({p[0] * c - p[1] * s, p[1] * c + p[0] * s}, -1);
  }
  turned = turned.to(x.scalar_type());
  return 2 * half == dim ? turned : at::cat({turned, x.narrow(2, 2 * half, dim - 2 * half)}, -1);
}

struct Rope : torch::autograd::Function<Rope> {
  static Tensor forward(AutogradContext *ctx, const Tensor &x, const Tensor &cos, const Tensor &sin, bool pairs) {
    ctx->save_for_backward({cos, sin});
    ctx->saved_data["pairs"] = pairs;
    return rope_apply(x, cos, sin, pairs, 1);
  }
  static variable_list backward(AutogradContext *ctx, variable_list g) {
    auto saved = ctx->get_saved_variables();
    return {rope_apply(g[0], saved[0], saved[1], ctx->saved_data["pairs"].toBool(), -1), Tensor(), Tensor(), Tensor()};  // the inverse rotation
  }
};

// ---- silu(gate) * up ----------------------------------------------------------
struct SiluMul : torch::autograd::Function<SiluMul> {
  static Tensor forward(AutogradContext *ctx, const Tensor &gu) {
    ctx->save_for_backward({gu});
    return apply_(gu);
  }
  static Tensor apply_(const Tensor &gu0) {
    Tensor gu = gu0.contiguous();
    TORCH_CHECK(gu.size(-1) % 2 == 0, "the last dimension of ", gu.sizes(), " is not even");
    int64_t f = gu.size(-1) / 2, rows = f ? gu.numel() / (2 * f) : 0;
    const bool ours = agt::gpu::takes(gu, f);
    if (!ours && !native(gu)) {
      auto p = gu.to(acc_type(gu.scalar_type())).chunk(2, -1);
      return (at::silu(p[0]) * p[1]).to(gu.scalar_type());  // rounded once
    }
    auto shape = gu.sizes().vec();
    shape.back() = f;
    Tensor y = at::empty(shape, gu.options());
    if (ours) {
      agt::gpu::gate(gu, /*gelu=*/false, y);
      return y;
    }
    dispatch(gu, "silu_mul", [&](auto &kn, auto st, auto) {
      using S = decltype(st);
      const S *x = in<S>(gu);
      S *o = out_ptr<S>(y);
      at::parallel_for(0, rows, 8, [&](int64_t b, int64_t e) { kn.silu_mul(x + b * 2 * f, o + b * f, e - b, f); });
    });
    return y;
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    Tensor gu = ctx->get_saved_variables()[0].contiguous(), dy = grads[0].contiguous();
    int64_t f = gu.size(-1) / 2, rows = f ? gu.numel() / (2 * f) : 0;
    if (agt::gpu::takes(gu, f) && agt::gpu::takes(dy, f)) {
      Tensor dx = at::empty_like(gu);
      agt::gpu::gate_gradient(gu, dy, dx);
      return {dx};
    }
    if (!native(gu)) {
      auto p = gu.chunk(2, -1);
      auto acc = acc_type(gu.scalar_type());
      auto g = p[0].to(acc), u = p[1].to(acc), d = dy.to(acc), sg = at::sigmoid(g);
      return {at::cat({d * u * sg * (1 + g * (1 - sg)), d * g * sg}, -1).to(gu.scalar_type())};
    }
    Tensor dx = at::empty_like(gu);
    dispatch(gu, "silu_mul", [&](auto &kn, auto st, auto) {
      using S = decltype(st);
      const S *x = in<S>(gu), *d = in<S>(dy);
      S *o = out_ptr<S>(dx);
      at::parallel_for(0, rows, 8, [&](int64_t b, int64_t e) {
        kn.silu_mul_backward(x + b * 2 * f, d + b * f, o + b * 2 * f, e - b, f);
      });
    });
    return {dx};
  }
};

// ---- RMSNorm -------------------------------------------------------------------
// y = (offset + w) · x / sqrt(mean(x²) + eps), in the accumulation type (Zhang & Sennrich
// 2019). Where y0 is given, x + y0 is normalised and returned too.
Tensor rms_cpu(const Tensor &x, const Tensor *add, const Tensor &w, Tensor *sum, double eps, double offset) {
  Tensor y = at::empty_like(x);
  int64_t n = w.size(0), rows = n ? x.numel() / n : 0;
  dispatch(x, "rms_norm", [&](auto &kn, auto st, auto ac) {
    using S = decltype(st);
    using A = decltype(ac);
    const S *xp = in<S>(x), *ap = add ? in<S>(*add) : nullptr, *wp = in<S>(w);
    S *sp = sum ? out_ptr<S>(*sum) : nullptr, *yp = out_ptr<S>(y);
    at::parallel_for(0, rows, 8, [&](int64_t b, int64_t e) {
      kn.rms_norm(xp + b * n, ap ? ap + b * n : nullptr, wp, sp ? sp + b * n : nullptr, yp + b * n, e - b, n, eps, A(offset));
    });
  });
  return y;
}

struct RMSNorm : torch::autograd::Function<RMSNorm> {
  static Tensor forward(AutogradContext *ctx, const Tensor &x0, const Tensor &w, double eps, double offset) {
    Tensor x = x0.contiguous();
    ctx->save_for_backward({x, w});
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["offset"] = offset;
    return apply_(x, w, eps, offset);
  }
  static void check(const Tensor &x, const Tensor &w) {
    TORCH_CHECK(w.dim() == 1 && x.dim() > 0 && x.size(-1) == w.size(0), "x is ", x.sizes(), ", the weight is ", w.sizes());
    TORCH_CHECK(x.scalar_type() == w.scalar_type(), "x is ", x.scalar_type(), ", the weight is ", w.scalar_type());
  }
  static Tensor apply_(const Tensor &x, const Tensor &w, double eps, double offset) {
    check(x, w);
    if (agt::gpu::takes(x, w.size(0))) {
      Tensor y = at::empty_like(x);
      agt::gpu::rms_norm(x, nullptr, w.contiguous(), nullptr, {eps, offset}, y);
      return y;
    }
    if (!native(x)) {
      auto a = x.to(acc_type(x.scalar_type()));
      auto factor = w.to(a.scalar_type());
      if (offset != 0) factor = factor + offset;
      return (a * at::rsqrt(a.pow(2).mean(-1, true) + eps) * factor).to(x.scalar_type());
    }
    return rms_cpu(x, nullptr, w.contiguous(), nullptr, eps, offset);
  }
  static variable_list cpu_backward(const Tensor &x, const Tensor &w, const Tensor &g, double eps, double offset) {
    Tensor dx = at::empty_like(x);
    int64_t n = w.size(0), rows = n ? x.numel() / n : 0;
    // A row of sums for each thread, added up in a fixed order: the result does
    // not depend on which thread ended first.
    Tensor sums = at::zeros({at::get_num_threads(), n}, w.options().dtype(acc_type(w.scalar_type())));
    dispatch(x, "rms_norm", [&](auto &kn, auto st, auto ac) {
      using S = decltype(st);
      using A = decltype(ac);
      const S *xp = in<S>(x), *wp = in<S>(w), *gp = in<S>(g);
      S *dp = out_ptr<S>(dx);
      A *sp = out_ptr<A>(sums);
      at::parallel_for(0, rows, 8, [&](int64_t b, int64_t e) {
        kn.rms_norm_backward(xp + b * n, wp, gp + b * n, dp + b * n, sp + at::get_thread_num() * n, e - b, n, eps, A(offset));
      });
    });
    return {dx, sums.sum(0).to(w.scalar_type()), Tensor(), Tensor()};
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    auto acc = acc_type(saved[0].scalar_type());
    double eps = ctx->saved_data["eps"].toDouble(), offset = ctx->saved_data["offset"].toDouble();
    if (native(saved[0])) return cpu_backward(saved[0], saved[1].contiguous(), grads[0].contiguous(), eps, offset);
    if (agt::gpu::takes_norm_gradient(saved[0], saved[1].size(0)) && grads[0].scalar_type() == saved[0].scalar_type()) {
      Tensor dx = at::empty_like(saved[0]);
      Tensor dw = agt::gpu::rms_norm_gradient(saved[0], saved[1].contiguous(), grads[0].contiguous(), {eps, offset}, dx);
      return {dx, dw, Tensor(), Tensor()};
    }
    auto x = saved[0].to(acc), w = saved[1].to(acc), g = grads[0].to(acc);
    if (offset != 0) w = w + offset;
    auto inv = at::rsqrt(x.pow(2).mean(-1, true) + eps);
    auto xn = x * inv, gw = g * w;
    auto dx = inv * (gw - xn * (gw * xn).mean(-1, true));
    auto dw = (g * xn).reshape({-1, w.size(0)}).sum(0);
    return {dx.to(saved[0].scalar_type()), dw.to(saved[1].scalar_type()), Tensor(), Tensor()};
  }
};

// ---- low-rank adapters (Hu et al. 2022) -------------------------------------------
// drop sets each value to 0 with probability p and scales the others by 1/(1 − p).
// Which ones follows from the seed and the place alone: backward computes them
// again, and no mask is kept.
Tensor drop(const Tensor &x0, double p, uint64_t seed) {
  if (p <= 0) return x0;
  Tensor x = x0.contiguous();
  uint64_t limit = uint64_t(p * 4294967296.0);
  if (!native(x)) {  // the same numbers in int64, whose products wrap; its shifts carry the sign
    auto shr = [](const Tensor &z, int64_t by) { return z.bitwise_right_shift(at::Scalar(by)).bitwise_and((int64_t(1) << (64 - by)) - 1); };
    int64_t pairs = (x.numel() + 1) / 2;
    Tensor z = at::arange(1, pairs + 1, x.options().dtype(at::kLong)).mul_(int64_t(0x9e3779b97f4a7c15ull)).add_(int64_t(seed));
    z = z.bitwise_xor(shr(z, 30)).mul_(int64_t(0xbf58476d1ce4e5b9ull));
    z = z.bitwise_xor(shr(z, 27)).mul_(int64_t(0x94d049bb133111ebull));
    z = z.bitwise_xor(shr(z, 31));
    Tensor halves = at::stack({z.bitwise_and(0xffffffffll), shr(z, 32)}, 1).view(-1).narrow(0, 0, x.numel());
    return x.masked_fill(halves.lt(int64_t(limit)).view(x.sizes()), 0).mul_(1 / (1 - p));
  }
  Tensor y = at::empty_like(x);
  dispatch(x, "dropout", [&](auto &, auto st, auto) {
    using S = decltype(st);
    const S *in_ = in<S>(x);
    S *out_ = out_ptr<S>(y);
    auto keep = [&](uint64_t i) {  // splitmix64 of the i-th pair; 32 bits for each of the two
      uint64_t z = seed + (i / 2 + 1) * 0x9e3779b97f4a7c15ull;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
      z ^= z >> 31;
      return ((i & 1) ? z >> 32 : z & 0xffffffffull) >= limit;
    };
    at::parallel_for(0, x.numel(), 4096, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; i++) out_[i] = keep(i) ? in_[i] : S{};
    });
  });
  return y.mul_(1 / (1 - p));
}

struct LoRASpec {
  Tensor bias;  // undefined: none
  std::vector<int64_t> row;
  std::vector<int64_t> seed;
  double scale, dropout;
};

// Of the activations only x and the [tokens, rank] products are kept.
struct LoRALinear : torch::autograd::Function<LoRALinear> {
  static Tensor forward(AutogradContext *ctx, const Tensor &x, const Tensor &w, at::TensorList ab, const LoRASpec &spec) {
    variable_list keep{x, w};
    Tensor y = run(x, w, ab, spec, &keep);
    ctx->save_for_backward(keep);
    ctx->saved_data["row"] = spec.row;
    ctx->saved_data["seed"] = spec.seed;
    ctx->saved_data["scale"] = spec.scale;
    ctx->saved_data["dropout"] = spec.dropout;
    return y;
  }
  static Tensor run(const Tensor &x, const Tensor &w, at::TensorList ab, const LoRASpec &spec, variable_list *keep) {
    Tensor y = agt::linear(x, w, spec.bias);
    for (size_t i = 0; i < spec.row.size(); i++) {
      const Tensor &a = ab[2 * i], &b = ab[2 * i + 1];
      Tensor u = at::mm(drop(x, spec.dropout, uint64_t(spec.seed[i])), a.t());
      y.narrow(1, spec.row[i], b.size(0)).add_(at::mm(u, b.t()), spec.scale);
      if (keep) keep->insert(keep->end(), {a, b, u});
    }
    return y;
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    auto row = ctx->saved_data["row"].toIntVector(), seed = ctx->saved_data["seed"].toIntVector();
    double scale = ctx->saved_data["scale"].toDouble(), p = ctx->saved_data["dropout"].toDouble();
    const Tensor &x = saved[0], dy = grads[0];
    variable_list out(3 + 2 * row.size());  // x, w, the pairs, the spec
    bool more = ctx->needs_input_grad(0);
    Tensor dx;
    if (more) dx = agt::product(dy, saved[1]);
    for (size_t i = 0; i < row.size(); i++) {
      const Tensor &a = saved[2 + 3 * i], &b = saved[3 + 3 * i], &u = saved[4 + 3 * i];
      Tensor dyi = dy.narrow(1, row[i], b.size(0));
      Tensor du = at::mm(dyi, b).mul_(scale);
      out[2 + 2 * i] = at::mm(du.t(), drop(x, p, uint64_t(seed[i])));
      out[3 + 2 * i] = at::mm(dyi.t(), u).mul_(scale);
      if (more) dx.add_(drop(at::mm(du, a), p, uint64_t(seed[i])));
    }
    out[0] = dx;
    return out;
  }
};

// ---- log-probs of given tokens, without keeping [tokens × vocabulary] ---------------
// forward: lp_i = z_{i,y_i} − logsumexp(z_i), H_i = logsumexp(z_i) − Σ p z, with
// z = scale·hidden·Wᵀ computed `chunk` rows at a time; backward computes z again.
// dL/dz = g·(onehot(y) − p) − g_H·p·(log p + H), and scale times that goes back to
// hidden·Wᵀ. A row's scale is 1 over a temperature; without a tensor of them it is 1.
// The softmax's gradient takes the logits' place, in their type. Each row's
// logsumexp and entropy are kept from the forward pass: backward reads them.
constexpr double kLowest = -1e30;  // a log-prob of −∞ times its 0 is no number
// The logit of an id that cannot be drawn. It is finite: −∞ times its probability 0 is no number.
constexpr double kBarred = -1e9;
void bar(Tensor &z, const Tensor &barred) {
  if (barred.defined()) z.index_fill_(1, barred, kBarred);
}
struct HeadRows {  // no arguments of their own: apply takes no undefined tensor
  Tensor scale, barred;
  int64_t chunk;
  double cap;
};
// cap·tanh(z/cap), rounded once.
Tensor soft_capped(const Tensor &z, double cap) {
  return cap == 0 ? z : (z.to(acc_type(z.scalar_type())) / cap).tanh_().mul_(cap).to(z.scalar_type());
}
struct HeadLogprobs : torch::autograd::Function<HeadLogprobs> {
  static variable_list forward(AutogradContext *ctx, const Tensor &h, const Tensor &w, const Tensor &y, const HeadRows &rows) {
    const Tensor &scale = rows.scale;
    int64_t n = h.size(0), chunk = rows.chunk;
    auto acc = acc_type(h.scalar_type());
    Tensor lp = at::empty({n}, h.options().dtype(acc)), ent = at::empty_like(lp), lse = at::empty_like(lp);
    const Tensor by = agt::factor(w, std::min(chunk, n));
    for (int64_t i = 0; i < n; i += chunk) {
      int64_t m = std::min(chunk, n - i);
      Tensor z = soft_capped(agt::product(h.narrow(0, i, m), by.t()), rows.cap);
      bar(z, rows.barred);
      Tensor lp_ = lp.narrow(0, i, m), ent_ = ent.narrow(0, i, m), lse_ = lse.narrow(0, i, m), y_ = y.narrow(0, i, m);
      if (native(z)) {
        dispatch(z, "head_logprobs", [&](auto &kn, auto st, auto ac) {
          using S = decltype(st);
          using A = decltype(ac);
          int64_t v = z.size(1);
          const S *zp = in<S>(z);
          const int64_t *yp = y_.const_data_ptr<int64_t>();
          A *l = out_ptr<A>(lp_), *e = out_ptr<A>(ent_), *s = out_ptr<A>(lse_);
          const A *cp = scale.defined() ? in<A>(scale) + i : nullptr;
          at::parallel_for(0, m, 4, [&](int64_t from, int64_t to) {
            for (int64_t r = from; r < to; r++) kn.softmax_row(zp + r * v, v, yp[r], cp ? cp[r] : A(1), l + r, e + r, s + r);
          });
        });
        continue;
      }
      if (agt::gpu::have(z)) {
        agt::gpu::head(z, y_, scale.defined() ? scale.narrow(0, i, m) : scale, lp_, ent_, lse_);
        continue;
      }
      z = z.to(acc);
      if (scale.defined()) z = z.mul(scale.narrow(0, i, m).unsqueeze(1));
      lse_.copy_(at::logsumexp(z, -1));
      lp_.copy_(z.gather(1, y_.unsqueeze(1)).squeeze(1) - lse_);
      // −Σ p log p, not lse − Σ p z, which loses what lse and z have in common.
      auto logp = z.sub_(lse_.unsqueeze(1)).clamp_min_(kLowest);
      ent_.copy_(logp.exp().mul_(logp).sum(-1).neg_());
    }
    ctx->save_for_backward({h, w, y, lse, ent, scale, rows.barred});
    ctx->saved_data["chunk"] = chunk;
    ctx->saved_data["cap"] = rows.cap;
    ctx->set_materialize_grads(false);
    return {lp, ent};
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    auto &h = saved[0], &w = saved[1], &y = saved[2], &lse = saved[3], &ent = saved[4], &scale = saved[5], &barred = saved[6];
    int64_t n = h.size(0), chunk = ctx->saved_data["chunk"].toInt();
    double cap = ctx->saved_data["cap"].toDouble();
    auto acc = acc_type(h.scalar_type());
    bool entropic = grads[1].defined();  // most losses ask nothing of it
    Tensor g = grads[0].defined() ? grads[0].to(acc).contiguous() : at::zeros({n}, h.options().dtype(acc)), ge;
    if (entropic) ge = grads[1].to(acc).contiguous();
    Tensor dh = at::empty_like(h), dw;
    const Tensor by = agt::factor(w, std::min(chunk, n));
    for (int64_t i = 0; i < n; i += chunk) {
      int64_t m = std::min(chunk, n - i);
      auto hc = h.narrow(0, i, m), y_ = y.narrow(0, i, m), g_ = g.narrow(0, i, m), lse_ = lse.narrow(0, i, m), ent_ = ent.narrow(0, i, m);
      Tensor dl = soft_capped(agt::product(hc, by.t()), cap), slope;
      if (cap != 0) slope = 1 - (dl.to(acc) / cap).square_();  // tanh's, of its value
      bar(dl, barred);
      if (native(dl)) {
        dispatch(dl, "head_logprobs", [&](auto &kn, auto st, auto ac) {
          using S = decltype(st);
          using A = decltype(ac);
          int64_t v = dl.size(1);
          S *zp = out_ptr<S>(dl);
          const int64_t *yp = y_.const_data_ptr<int64_t>();
          const A *gp = in<A>(g_), *ep = entropic ? in<A>(ge) + i : nullptr, *sp = in<A>(lse_), *hp = in<A>(ent_);
          const A *cp = scale.defined() ? in<A>(scale) + i : nullptr;
          at::parallel_for(0, m, 4, [&](int64_t from, int64_t to) {
            for (int64_t r = from; r < to; r++)
              kn.softmax_row_backward(zp + r * v, v, yp[r], cp ? cp[r] : A(1), gp[r], ep ? ep[r] : A(0), sp[r], hp[r]);
          });
        });
      } else if (agt::gpu::have(dl)) {
        agt::gpu::head_gradient(dl, y_, scale.defined() ? scale.narrow(0, i, m) : scale, lse_, ent_, g_, entropic ? ge.narrow(0, i, m) : ge);
      } else {
        auto logp = dl.to(acc);
        if (scale.defined()) logp = logp.mul(scale.narrow(0, i, m).unsqueeze(1));
        logp = logp.sub_(lse_.unsqueeze(1)).clamp_min_(kLowest);
        auto p = logp.exp(), d = p * -g_.unsqueeze(1);
        if (entropic) d.sub_(p.mul_(logp.add_(ent_.unsqueeze(1))).mul_(ge.narrow(0, i, m).unsqueeze(1)));
        d.scatter_add_(1, y_.unsqueeze(1), g_.unsqueeze(1));
        if (scale.defined()) d.mul_(scale.narrow(0, i, m).unsqueeze(1));
        dl = d.to(h.scalar_type());
      }
      if (slope.defined()) dl = (dl.to(acc) * slope).to(h.scalar_type());
      dh.narrow(0, i, m).copy_(agt::product(dl, by));
      if (!ctx->needs_input_grad(1)) continue;  // a frozen head
      auto part = agt::product(dl.t(), hc);
      if (n <= chunk) dw = part;
      else if (!dw.defined()) dw = part.to(acc);
      else dw.add_(part);
    }
    if (!ctx->needs_input_grad(1)) return {dh, Tensor(), Tensor(), Tensor()};
    if (!dw.defined()) dw = at::zeros_like(w);
    return {dh, dw.to(w.scalar_type()), Tensor(), Tensor()};
  }
};

Tensor gelu_mul(const Tensor &x) {
  if (!at::GradMode::is_enabled() && x.is_contiguous() && agt::gpu::takes(x, x.size(-1) / 2)) {
    auto shape = x.sizes().vec();
    shape.back() /= 2;
    Tensor y = at::empty(shape, x.options());
    agt::gpu::gate(x, /*gelu=*/true, y);
    return y;
  }
  auto p = x.to(acc_type(x.scalar_type())).chunk(2, -1);
  return (at::gelu(p[0], "tanh") * p[1]).to(x.scalar_type());  // rounded once
}

// The low-rank pairs of experts on one of their matrices (agt_expert_pairs): add puts
// scale·(x·Aᵀ)·Bᵀ of expert e beside what its matrix gives of x.
struct ExpertPairs {
  std::vector<Tensor> a, b;
  double scale;
  ExpertPairs(agt_tensor a_, agt_tensor b_, int64_t experts, int64_t in, int64_t out, double scale_) : scale(scale_) {
    if (!a_) return;
    const Tensor &A = *static_cast<Tensor *>(a_), &B = *static_cast<Tensor *>(b_);
    TORCH_CHECK(A.dim() == 2 && A.size(1) == in && A.size(0) % experts == 0 && B.sizes() == at::IntArrayRef({out, A.size(0)}), "A is ",
                A.sizes(), ", B is ", B.sizes(), " beside ", experts, " experts of ", out, " times ", in);
    int64_t rank = A.size(0) / experts;
    a = A.view({experts, rank, in}).unbind(0);
    b = B.view({out, rank, experts}).permute({2, 0, 1}).contiguous().unbind(0);
  }
  Tensor add(const Tensor &y, const Tensor &x, int64_t e) const {
    return a.empty() ? y : at::add(y, at::linear(at::linear(x, a[e]), b[e]), scale);
  }
};

// The runs of rows of experts, multiplied in one call. Where each ends is known on the device alone, so a step does not
// wait for it: in bfloat16 from compute capability 9.0 on; elsewhere libtorch copies the ends to the host.
struct ExpertRuns {
  Tensor ends;    // [experts] of Int
  Tensor expert;  // of each row

  // w is [experts, k, n].
  Tensor product(const Tensor &rows, const Tensor &w) const { return at::_grouped_mm(rows, w, ends); }

  // Whether experts with rows of k numbers can be multiplied so. Not in training: libtorch's gradient needs each run to begin
  // at a multiple of 16 bytes.
  static bool take(const Tensor &x, std::initializer_list<int64_t> ks) {
    if (x.is_cpu() || at::GradMode::is_enabled() || (x.scalar_type() != at::kBFloat16 && x.scalar_type() != at::kFloat)) return false;
    for (int64_t k : ks)
      if (k * int64_t(x.element_size()) % 16 != 0) return false;
    return true;
  }
};

// Whether our kernels for a device compute these experts.
bool by_kernels(const Tensor &x, int64_t experts, const Tensor &ids, int64_t size) {
  return !at::GradMode::is_enabled() && agt::gpu::takes_experts(x, experts, ids.size(1), size);
}

// Σ weight·one(rows, expert) over the experts of each row of x [T, h]: ids and weights [T, k]. Where ExpertRuns take x,
// all(rows, runs) computes the rows of all experts.
template <class F, class G>
Tensor experts_of(const Tensor &x, const Tensor &index, const Tensor &weights, int64_t experts, bool in_runs, F one, G all) {
  int64_t active = index.size(1);
  // Rows in the order of their experts: each expert has a run of them.
  Tensor flat = index.reshape(-1), order = std::get<1>(flat.sort(/*stable=*/true, 0, false));
  Tensor tokens = order.floor_divide(active);
  Tensor counts = at::zeros({experts}, flat.options()).scatter_add_(0, flat, at::ones_like(flat));
  Tensor rows = x.index_select(0, tokens), w = weights.reshape(-1).index_select(0, order).unsqueeze(1).to(x.scalar_type());
  auto sum = [&](const Tensor &y) { return at::zeros_like(x).index_add(0, tokens, y * w); };
  if (in_runs) return sum(all(rows, ExpertRuns{counts.cumsum(0).to(at::kInt), flat.index_select(0, order)}));
  counts = counts.to(at::kCPU);
  std::vector<Tensor> parts;
  for (int64_t e = 0, at_ = 0; e < experts; e++) {
    int64_t n = counts.const_data_ptr<int64_t>()[e];
    if (n == 0) continue;
    parts.push_back(one(rows.narrow(0, at_, n), e));
    at_ += n;
  }
  if (parts.empty()) return at::zeros_like(x);
  return sum(at::cat(parts, 0));
}

}  // namespace

extern "C" {

void agt_free(agt_tensor t) { delete reinterpret_cast<Tensor *>(t); }

int agt_from_data(agt_tensor *out, const void *data, const int64_t *shape, int ndim, int dtype, char **err) {
  return guard(err, [&] {
    Tensor t = at::empty(at::IntArrayRef(shape, ndim), at::TensorOptions().dtype(at::ScalarType(dtype)));
    if (t.nbytes()) std::memcpy(t.data_ptr(), data, t.nbytes());
    *out = wrap(t);
  });
}
int agt_from_parts(agt_tensor *out, const agt_bytes *parts, int n, const int64_t *shape, int ndim, int dtype, int device, char **err) {
  return guard(err, [&] {
    *out = wrap(agt::upload(parts, n, device_of(device)).view(at::ScalarType(dtype)).view(at::IntArrayRef(shape, ndim)));
  });
}
int agt_full(agt_tensor *out, const int64_t *shape, int ndim, double value, int dtype, int device, char **err) {
  return guard(err, [&] {
    auto opt = at::TensorOptions().dtype(at::ScalarType(dtype)).device(device_of(device));
    *out = wrap(at::full(at::IntArrayRef(shape, ndim), value, opt));
  });
}
int agt_empty(agt_tensor *out, const int64_t *shape, int ndim, int dtype, int device, char **err) {
  return guard(err, [&] {
    auto opt = at::TensorOptions().dtype(at::ScalarType(dtype)).device(device_of(device));
    *out = wrap(at::empty(at::IntArrayRef(shape, ndim), opt));
  });
}
int agt_empty_host(agt_tensor *out, const int64_t *shape, int ndim, int dtype, int device, char **err) {
  return guard(err, [&] {
    auto opt = at::TensorOptions().dtype(at::ScalarType(dtype)).pinned_memory(device_of(device).is_cuda());
    *out = wrap(at::empty(at::IntArrayRef(shape, ndim), opt));
  });
}
int agt_to(agt_tensor *out, agt_tensor x, int dtype, int device, int copy, char **err) {
  return guard(err, [&] { *out = wrap(T(x).to(device_of(device), at::ScalarType(dtype), false, copy != 0)); });
}
int agt_copy_out(agt_tensor x, void *dst, int dtype, int64_t numel, char **err) {
  return guard(err, [&] {
    Tensor t = T(x).detach().to(at::kCPU, at::ScalarType(dtype)).contiguous();
    TORCH_CHECK(t.numel() == numel, "the tensor has ", t.numel(), " values, ", numel, " were asked for");
    if (numel > 0) std::memcpy(dst, t.const_data_ptr(), t.nbytes());
  });
}
int agt_copy_(agt_tensor dst, agt_tensor src, int waits, char **err) {
  return guard(err, [&] {
    c10::AutoGradMode off(false);
    T(dst).copy_(T(src), !waits);
  });
}
int agt_shape(agt_tensor x, int64_t *shape, int *ndim, char **err) {
  return guard(err, [&] {
    auto s = T(x).sizes();
    TORCH_CHECK(s.size() <= 8, "a tensor of ", s.size(), " dimensions");
    *ndim = int(s.size());
    for (size_t i = 0; i < s.size(); i++) shape[i] = s[i];
  });
}
int agt_info(agt_tensor x, int *dtype, int *device, int *requires_grad, char **err) {
  return guard(err, [&] {
    auto &t = T(x);
    *dtype = int(t.scalar_type());
    *device = number_of(t.device());
    *requires_grad = t.requires_grad();
  });
}
int agt_requires_grad_(agt_tensor x, int on, char **err) {
  return guard(err, [&] { T(x).requires_grad_(on != 0); });
}
int agt_narrow(agt_tensor *out, agt_tensor x, int dim, int64_t start, int64_t len, char **err) {
  return guard(err, [&] { *out = wrap(T(x).narrow(dim, start, len)); });
}
int agt_view(agt_tensor *out, agt_tensor x, const int64_t *shape, int ndim, char **err) {
  return guard(err, [&] { *out = wrap(T(x).reshape(at::IntArrayRef(shape, ndim))); });
}
int agt_split(agt_tensor *outs, agt_tensor x, const int64_t *sizes, int n, int dim, char **err) {
  return guard(err, [&] {
    auto parts = T(x).split_with_sizes(at::IntArrayRef(sizes, n), dim);
    for (int i = 0; i < n; i++) outs[i] = wrap(parts[i]);
  });
}
int agt_cat(agt_tensor *out, agt_tensor *xs, int n, int dim, char **err) {
  return guard(err, [&] {
    std::vector<Tensor> v;
    for (int i = 0; i < n; i++) v.push_back(T(xs[i]));
    *out = wrap(at::cat(v, dim));
  });
}
int agt_linear(agt_tensor *out, agt_tensor x, agt_tensor w, agt_tensor bias, char **err) {
  return guard(err, [&] {
    TORCH_CHECK(T(w).dim() == 2 && T(x).size(-1) == T(w).size(1), "x is ", T(x).sizes(), ", the weight is ",
                T(w).sizes(), "; x's last dimension must equal the weight's second");
    *out = wrap(agt::linear(T(x), T(w), bias ? T(bias) : Tensor()));
  });
}
int agt_pack_linear(agt_tensor *out, agt_tensor w, char **err) {
  return guard(err, [&] {
    c10::AutoGradMode off(false);
    if (agt::takes_own_panels(T(w))) {
      *out = wrap(agt::own_panels(T(w).detach()));
      return;
    }
    static auto op = c10::Dispatcher::singleton()
                         .findSchemaOrThrow("mkldnn::_reorder_linear_weight", "")
                         .typed<Tensor(const Tensor &, std::optional<int64_t>)>();
    *out = wrap(op.call(T(w).detach(), std::nullopt));
  });
}
int agt_linear_packed(agt_tensor *out, agt_tensor x, agt_tensor packed, agt_tensor bias, char **err) {
  return guard(err, [&] {
    c10::AutoGradMode off(false);
    if (const auto *own = agt::own_head(T(packed))) {
      *out = wrap(agt::own_linear(T(x).contiguous(), *own, bias ? T(bias) : Tensor()));
      return;
    }
    TORCH_CHECK(T(packed).is_mkldnn(), "the weight is not packed");
    TORCH_CHECK(T(x).dim() > 0 && T(x).size(-1) == T(packed).size(1), "x is ", T(x).sizes(), ", the weight is ",
                T(packed).sizes(), "; x's last dimension must equal the weight's second");
    TORCH_CHECK(T(x).scalar_type() == T(packed).scalar_type(), "x is ", T(x).scalar_type(), ", the weight is ", T(packed).scalar_type());
    using List = c10::List<std::optional<at::Scalar>>;
    static auto op = c10::Dispatcher::singleton()
                         .findSchemaOrThrow("mkldnn::_linear_pointwise", "")
                         .typed<Tensor(const Tensor &, const Tensor &, const std::optional<Tensor> &, std::string_view, List,
                                       std::optional<std::string_view>)>();
    *out = wrap(op.call(T(x).contiguous(), T(packed), bias ? std::optional<Tensor>(T(bias)) : std::nullopt, "none", List(), ""));
  });
}
int agt_lora_linear(agt_tensor *out, agt_tensor x, agt_tensor w, agt_tensor bias, agt_tensor *ab, const int64_t *row,
                    const uint64_t *seed, int n, double scale, double dropout, char **err) {
  return guard(err, [&] {
    TORCH_CHECK(T(x).dim() == 2 && T(w).dim() == 2 && T(x).size(1) == T(w).size(1), "x is ", T(x).sizes(), ", the weight is ",
                T(w).sizes(), "; x's last dimension must equal the weight's second");
    TORCH_CHECK(!T(w).requires_grad(), "the weight beside an adapter is frozen");
    TORCH_CHECK(dropout >= 0 && dropout < 1, "a dropout of ", dropout);
    variable_list pairs;
    LoRASpec spec{bias ? T(bias) : Tensor(), {}, {}, scale, dropout};
    for (int i = 0; i < n; i++) {
      auto &a = T(ab[2 * i]), &b = T(ab[2 * i + 1]);
      TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == T(x).size(1) && a.size(0) == b.size(1) && row[i] >= 0 &&
                      row[i] + b.size(0) <= T(w).size(0),
                  "A is ", a.sizes(), ", B is ", b.sizes(), " at row ", row[i], " beside a weight of ", T(w).sizes());
      pairs.push_back(a);
      pairs.push_back(b);
      spec.row.push_back(row[i]);
      spec.seed.push_back(int64_t(seed[i]));
    }
    *out = wrap(at::GradMode::is_enabled() ? LoRALinear::apply(T(x), T(w), at::TensorList(pairs), spec)
                                           : LoRALinear::run(T(x), T(w), pairs, spec, nullptr));
  });
}
int agt_add_low_rank_(agt_tensor y, agt_tensor x, agt_tensor *ab, const int64_t *from, const int64_t *count, int n, char **err) {
  return guard(err, [&] {
    c10::AutoGradMode off(false);
    TORCH_CHECK(T(y).dim() == 2 && T(x).dim() == 2 && T(y).size(0) == T(x).size(0), "y is ", T(y).sizes(), ", x is ", T(x).sizes(),
                "; they have a row for each token");
    for (int i = 0; i < n; i++) {
      auto &a = T(ab[2 * i]), &b = T(ab[2 * i + 1]);
      TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == T(x).size(1) && a.size(0) == b.size(1) && b.size(0) == T(y).size(1) &&
                      from[i] >= 0 && count[i] > 0 && from[i] + count[i] <= T(y).size(0),
                  "A is ", a.sizes(), ", B is ", b.sizes(), " for ", count[i], " rows from ", from[i], ", y is ", T(y).sizes());
      Tensor rows = T(y).narrow(0, from[i], count[i]);
      rows.addmm_(at::mm(T(x).narrow(0, from[i], count[i]), a.t()), b.t());
    }
  });
}
int agt_detach(agt_tensor *out, agt_tensor x, char **err) {
  return guard(err, [&] { *out = wrap(T(x).detach()); });
}
int agt_rms_norm(agt_tensor *out, agt_tensor x, agt_tensor w, double eps, double offset, char **err) {
  return guard(err, [&] {
    *out = wrap(at::GradMode::is_enabled() ? RMSNorm::apply(T(x), T(w), eps, offset)
                                           : RMSNorm::apply_(T(x).contiguous(), T(w), eps, offset));
  });
}
int agt_add_rms_norm(agt_tensor *sum, agt_tensor *out, agt_tensor x, agt_tensor y, agt_tensor w, double eps, double offset,
                     char **err) {
  return guard(err, [&] {
    TORCH_CHECK(T(x).sizes() == T(y).sizes(), "x is ", T(x).sizes(), ", y is ", T(y).sizes());
    TORCH_CHECK(T(x).scalar_type() == T(y).scalar_type(), "x is ", T(x).scalar_type(), ", y is ", T(y).scalar_type());
    RMSNorm::check(T(x), T(w));
    bool device = agt::gpu::takes(T(x), T(w).size(0)) && agt::gpu::takes(T(y), T(w).size(0));
    if (at::GradMode::is_enabled() || !(native(T(x)) || device)) {
      Tensor s = T(x) + T(y);
      *out = wrap(at::GradMode::is_enabled() ? RMSNorm::apply(s, T(w), eps, offset) : RMSNorm::apply_(s, T(w), eps, offset));
      *sum = wrap(s);
      return;
    }
    Tensor a = T(x).contiguous(), b = T(y).contiguous(), wc = T(w).contiguous();
    Tensor s = at::empty_like(a);
    Tensor normed = device ? at::empty_like(a) : rms_cpu(a, &b, wc, &s, eps, offset);
    if (device) agt::gpu::rms_norm(a, &b, wc, &s, {eps, offset}, normed);
    *out = wrap(normed);
    *sum = wrap(s);
  });
}
int agt_embedding(agt_tensor *out, agt_tensor weight, agt_tensor ids, char **err) {
  return guard(err, [&] {
    auto &id = T(ids);
    if (id.numel() > 0 && id.is_cpu()) {
      auto lo = id.min().item<int64_t>(), hi = id.max().item<int64_t>(), v = T(weight).size(0);
      TORCH_CHECK(lo >= 0 && hi < v, "token id ", lo < 0 ? lo : hi, " is outside the vocabulary of ", v);
    }
    *out = wrap(at::embedding(T(weight), id.to(T(weight).device())));
  });
}
int agt_rope(agt_tensor *out, agt_tensor x, agt_tensor cos, agt_tensor sin, int pairs, char **err) {
  return guard(err, [&] {
    *out = wrap(at::GradMode::is_enabled() ? Rope::apply(T(x), T(cos), T(sin), pairs != 0) : rope_apply(T(x), T(cos), T(sin), pairs != 0, 1));
  });
}
int agt_gelu_mul(agt_tensor *out, agt_tensor gu, char **err) {
  return guard(err, [&] {
    TORCH_CHECK(T(gu).size(-1) % 2 == 0, "the last dimension of ", T(gu).sizes(), " is not even");
    *out = wrap(gelu_mul(T(gu)));
  });
}
int agt_activate(agt_tensor *out, agt_tensor x0, int kind, char **err) {
  return guard(err, [&] {
    auto &x = T(x0);
    TORCH_CHECK(kind >= 0 && kind <= 2, "there is no activation ", kind);
    *out = wrap(kind == 2 ? x * at::sigmoid(x * 1.702) : at::gelu(x, kind == 1 ? "tanh" : "none"));
  });
}
int agt_layer_norm(agt_tensor *out, agt_tensor x, agt_tensor weight, agt_tensor bias, double eps, char **err) {
  return guard(err, [&] { *out = wrap(at::layer_norm(T(x), {T(x).size(-1)}, T(weight), T(bias), eps)); });
}
int agt_block_attention(agt_tensor *out, agt_tensor q, agt_tensor k, agt_tensor v, const int64_t *lengths, int n, char **err) {
  return guard(err, [&] { *out = wrap(agt::block_attention(T(q), T(k), T(v), lengths, n)); });
}
static Tensor known_rows(const Tensor &given) { return (given >= 0).all(-1, true); }  // [T, 1]
int agt_route(agt_tensor *ids, agt_tensor *weights, agt_tensor logits, agt_tensor bias, agt_tensor given, const agt_router *r, char **err) {
  return guard(err, [&] {
    auto &z = T(logits);
    int64_t n = z.dim() == 2 ? z.size(1) : 0;
    TORCH_CHECK(r->active > 0 && r->active <= n, r->active, " of logits ", z.sizes());
    if (!given && !at::GradMode::is_enabled() && agt::gpu::takes_choice(z, *r)) {
      agt::gpu::RowExperts of(z.size(0), r->active, n, z.device());
      agt::gpu::choose_experts(z.contiguous(), {bias ? T(bias).to(at::kFloat) : Tensor(), {}, {}, *r, false}, of);
      *ids = wrap(of.ids.to(at::kLong));
      *weights = wrap(of.shares);
      return;
    }
    Tensor p = r->sigmoid ? at::sigmoid(z.to(acc_type(z.scalar_type()))) : at::softmax(z, -1, acc_type(z.scalar_type()));
    Tensor choice = bias ? p + T(bias).to(p.scalar_type()) : p;
    if (r->groups > 1) {  // of each group its two best experts count
      Tensor by = choice.view({-1, r->groups, n / r->groups});
      Tensor best = std::get<1>(std::get<0>(by.topk(2, -1)).sum(-1).topk(r->top_groups, -1));
      Tensor in = at::zeros({z.size(0), r->groups}, z.options().dtype(at::kBool)).scatter_(1, best, true);
      choice = by.masked_fill(in.logical_not().unsqueeze(-1), -std::numeric_limits<double>::infinity()).view(z.sizes());
    }
    Tensor index = std::get<1>(choice.topk(r->active, -1));
    if (given) {
      TORCH_CHECK(T(given).sizes() == index.sizes(), "experts ", T(given).sizes(), " are given for ", index.sizes());
      index = at::where(known_rows(T(given)), T(given), index);
    }
    Tensor w = p.gather(1, index);
    if (r->normalise) w = w / (w.sum(-1, true) + (r->epsilon > 0 ? r->epsilon : r->sigmoid ? 1e-20 : 0.0));
    if (r->scale != 1) w = w * r->scale;
    *ids = wrap(index);
    *weights = wrap(w);
  });
}
int agt_not_chosen(agt_tensor *out, agt_tensor ids, agt_tensor given, char **err) {
  return guard(err, [&] {
    const Tensor &g = T(given);
    TORCH_CHECK(g.sizes() == T(ids).sizes(), "experts ", g.sizes(), " are given for ", T(ids).sizes());
    Tensor known = known_rows(g).expand_as(g);
    Tensor missed = (g.unsqueeze(2) == T(ids).unsqueeze(1)).any(-1).logical_not().logical_and(known);
    *out = wrap(at::stack({missed.sum(), known.sum()}).to(at::kDouble));
  });
}
int agt_experts(agt_tensor *out, agt_tensor x_, agt_tensor ids, agt_tensor weights, agt_tensor gate_up, agt_tensor down, int64_t experts,
                int gelu, const agt_expert_pairs *pairs, char **err) {
  return guard(err, [&] {
    int64_t h = T(x_).size(1), f = T(down).size(1);
    TORCH_CHECK(T(gate_up).sizes() == at::IntArrayRef({experts * 2 * f, h}) && T(down).size(0) == experts * h, experts, " experts of ",
                T(gate_up).sizes(), " and ", T(down).sizes());
    Tensor gu = T(gate_up).view({experts, 2 * f, h}), dn = T(down).view({experts, h, f});
    ExpertPairs into(pairs->gate_up_a, pairs->gate_up_b, experts, h, 2 * f, pairs->scale);
    ExpertPairs back(pairs->down_a, pairs->down_b, experts, f, h, pairs->scale);
    auto gated = [&](const Tensor &g) { return gelu ? gelu_mul(g) : at::GradMode::is_enabled() ? SiluMul::apply(g) : SiluMul::apply_(g); };
    auto one = [&](const Tensor &rows, int64_t e) {
      Tensor g = gated(into.add(agt::linear(rows, gu.select(0, e)), rows, e));
      return back.add(agt::linear(g, dn.select(0, e)), g, e);
    };
    auto all = [&](const Tensor &rows, const ExpertRuns &runs) {
      return runs.product(gated(runs.product(rows, gu.transpose(1, 2))), dn.transpose(1, 2));
    };
    const bool plain = into.a.empty() && back.a.empty();
    if (plain && by_kernels(T(x_), experts, T(ids), f)) {
      auto gating = gelu ? agt::gpu::kGelu : agt::gpu::kSilu;
      *out = wrap(agt::gpu::experts(T(x_), T(ids), T(weights), {gu, {}, false, gating, 0, 0}, {dn, {}, false, agt::gpu::kNotGated, 0, 0}));
      return;
    }
    *out = wrap(experts_of(T(x_), T(ids), T(weights), experts, plain && ExpertRuns::take(T(x_), {h, f}), one, all));
  });
}
int agt_clamped_experts(agt_tensor *out, agt_tensor x_, agt_tensor ids, agt_tensor weights, agt_tensor gate_up, agt_tensor gate_up_bias,
                        agt_tensor down, agt_tensor down_bias, double alpha, double limit, const agt_expert_pairs *pairs, char **err) {
  return guard(err, [&] {
    auto &gu = T(gate_up), &gb = T(gate_up_bias), &dn = T(down), &db = T(down_bias);
    int64_t h = T(x_).size(1);
    TORCH_CHECK(gu.dim() == 3 && dn.dim() == 3, "the experts are ", gu.sizes(), " and ", dn.sizes());
    int64_t experts = gu.size(0), f = dn.size(1);
    TORCH_CHECK(gu.sizes() == at::IntArrayRef({experts, h, 2 * f}) && dn.sizes() == at::IntArrayRef({experts, f, h}) &&
                    gb.sizes() == at::IntArrayRef({experts, 2 * f}) && db.sizes() == at::IntArrayRef({experts, h}),
                "the experts are ", gu.sizes(), " and ", dn.sizes(), ", their biases ", gb.sizes(), " and ", db.sizes());
    ExpertPairs into(pairs->gate_up_a, pairs->gate_up_b, experts, h, 2 * f, pairs->scale);
    ExpertPairs back(pairs->down_a, pairs->down_b, experts, f, h, pairs->scale);
    auto acc = acc_type(T(x_).scalar_type());
    auto clamped = [&](const Tensor &both) {
      Tensor p = both.to(acc).view({-1, f, 2});
      Tensor g = p.select(2, 0).clamp_max(limit), u = p.select(2, 1).clamp(-limit, limit);
      return ((u + 1) * (g * at::sigmoid(g * alpha))).to(both.scalar_type());  // rounded once
    };
    auto one = [&](const Tensor &rows, int64_t e) {
      Tensor y = clamped(into.add(at::addmm(gb.select(0, e), rows, gu.select(0, e)), rows, e));
      return back.add(at::addmm(db.select(0, e), y, dn.select(0, e)), y, e);
    };
    auto all = [&](const Tensor &rows, const ExpertRuns &runs) {
      Tensor y = clamped(runs.product(rows, gu) + gb.index_select(0, runs.expert));
      return runs.product(y, dn) + db.index_select(0, runs.expert);
    };
    const bool plain = into.a.empty() && back.a.empty();
    if (plain && by_kernels(T(x_), experts, T(ids), f)) {
      *out = wrap(agt::gpu::experts(T(x_), T(ids), T(weights), {gu, gb, true, agt::gpu::kClamped, alpha, limit},
                                    {dn, db, true, agt::gpu::kNotGated, 0, 0}));
      return;
    }
    *out = wrap(experts_of(T(x_), T(ids), T(weights), experts, plain && ExpertRuns::take(T(x_), {h, f}), one, all));
  });
}
int agt_soft_cap(agt_tensor *out, agt_tensor x, double cap, char **err) {
  return guard(err, [&] {
    c10::AutoGradMode off(false);
    TORCH_CHECK(cap > 0 && std::isfinite(cap), "values are capped by ", cap);
    *out = wrap(soft_capped(T(x), cap));
  });
}
int agt_causal_conv(agt_tensor *out, agt_tensor x, agt_tensor weight, agt_tensor bias, int silu, agt_tensor index, agt_kept kept, char **err) {
  return guard(err, [&] { *out = wrap(agt::causal_conv(T(x), T(weight), bias ? T(bias) : Tensor(), silu, T(index), kept_of(kept))); });
}
int agt_fused_delta(agt_tensor qkv) { return agt::delta_fused(T(qkv)); }
int agt_gated_delta(agt_tensor *out, agt_tensor qkv, agt_tensor b, agt_tensor a, agt_tensor a_log, agt_tensor dt_bias, agt_delta_heads h,
                    agt_runs runs, agt_chunks chunks, agt_kept kept, char **err) {
  return guard(err, [&] {
    agt::Chunks c{};
    if (chunks.count) c = {chunks.size, chunks.count, {chunks.levels, chunks.levels + chunks.n_levels}, T(chunks.place), T(chunks.parents)};
    *out = wrap(agt::gated_delta(T(qkv), T(b), T(a), T(a_log), T(dt_bias), {h.key_heads, h.value_heads, h.key_dim, h.value_dim},
                                 {runs.runs, runs.n, runs.saves, runs.n_saves}, c, kept_of(kept)));
  });
}
int agt_gated_rms_norm(agt_tensor *out, agt_tensor x, agt_tensor w, agt_tensor gate, double eps, char **err) {
  return guard(err, [&] { *out = wrap(agt::gated_rms_norm(T(x), T(w), T(gate), eps)); });
}
int agt_sigmoid_mul(agt_tensor *out, agt_tensor x, agt_tensor gate, char **err) {
  return guard(err, [&] { *out = wrap(T(x) * at::sigmoid(T(gate))); });
}
int agt_times(agt_tensor *out, agt_tensor x, double factor, char **err) {
  return guard(err, [&] { *out = wrap(T(x) * factor); });
}
int agt_silu_mul(agt_tensor *out, agt_tensor gu, char **err) {
  return guard(err, [&] { *out = wrap(at::GradMode::is_enabled() ? SiluMul::apply(T(gu)) : SiluMul::apply_(T(gu))); });
}
int agt_gpu_has(agt_tensor x) { return agt::gpu::have(T(x)); }
int agt_gpu_decodes(agt_tensor q) { return agt::gpu::have(T(q)) && T(q).dim() == 3 && T(q).size(2) % 8 == 0 && T(q).size(2) <= agt::gpu::kHeadSize; }
int agt_fused_attention(agt_tensor q, agt_tensor k, agt_tensor v) { return agt::fused(T(q), T(k), T(v)); }
int agt_tree_attention(agt_tensor *out, agt_tensor q, agt_tensor k, agt_tensor v, const int32_t *nodes, int n,
                       int64_t window, double scale, agt_tensor sinks, const agt_spans *spans, char **err) {
  return guard(err, [&] {
    auto s = spans_of(spans);
    *out = wrap(agt::tree_attention(T(q), T(k), T(v), nodes, n, {window, scale, sinks_of(sinks, T(q))}, s ? &*s : nullptr));
  });
}
int agt_gpu_heads(agt_tensor x) {
  auto &t = T(x);
  return t.dim() == 3 && t.is_contiguous() && t.size(2) <= agt::gpu::kHeadSize && agt::gpu::takes(t, t.size(2));
}
int agt_cached_heads(agt_tensor *q, agt_tensor x0, agt_head_rule r, agt_tensor slots, agt_tensor kpool, agt_tensor vpool, char **err) {
  return guard(err, [&] {
    c10::AutoGradMode off(false);
    auto &x = T(x0), &keys = T(kpool), &values = T(vpool);
    auto maybe = [](agt_tensor t) { return t ? T(t) : Tensor(); };
    agt::gpu::HeadRule rule{Tensor(), maybe(r.q_norm), maybe(r.k_norm), {maybe(r.q_cos), maybe(r.q_sin)}, {maybe(r.k_cos), maybe(r.k_sin)},
                            Tensor(), r.neighbours != 0, r.eps, r.offset};
    TORCH_CHECK(agt_gpu_heads(x0) && keys.dim() == 4 && keys.sizes() == values.sizes() && keys.scalar_type() == x.scalar_type() &&
                    values.scalar_type() == x.scalar_type() && keys.size(3) == x.size(2) && x.size(1) > 2 * keys.size(2) &&
                    T(slots).numel() == x.size(0),
                "the heads are ", x.sizes(), ", the caches ", keys.sizes(), " and ", values.sizes(), ", rows of them ", T(slots).sizes());
    for (const Tensor &w : {rule.q_norm, rule.k_norm})
      TORCH_CHECK(!w.defined() || (w.dim() == 1 && w.size(0) == x.size(2) && w.scalar_type() == x.scalar_type()), "the norm of heads of ",
                  x.size(2), " is ", w.sizes());
    TORCH_CHECK(rule.q.cos.defined() == rule.k.cos.defined(), "either queries and keys are rotated, or neither is");
    for (const Tensor &t : {rule.q.cos, rule.q.sin, rule.k.cos, rule.k.sin})
      TORCH_CHECK(!t.defined() || (t.sizes() == rule.k.cos.sizes() && t.size(0) == x.size(0) && 2 * t.size(1) <= x.size(2)), "heads ", x.sizes(),
                  " are rotated by ", t.sizes());
    Tensor to = at::empty({x.size(0), x.size(1) - 2 * keys.size(2), x.size(2)}, x.options());
    agt::gpu::heads(x, rule, T(slots), keys, values, to);
    *q = wrap(to);
  });
}
int agt_cached_attention(agt_tensor *out, agt_tensor q, agt_tensor k, agt_tensor v, agt_tensor kpool, agt_tensor vpool,
                         agt_tensor slots, const int32_t *segs, int n, const int32_t *blocks, int64_t window, double scale,
                         agt_tensor sinks, const agt_spans *spans, const agt_decoding *decoding, char **err) {
  return guard(err, [&] {
    c10::AutoGradMode off(false);
    auto s = spans_of(spans);
    agt::PagedStep step{segs, n, blocks, std::nullopt, Tensor()};
    if (decoding) {
      const Tensor &numbers = T(decoding->numbers);  // the table's width, rows, contexts, the table
      int64_t n = decoding->n;
      step.decoding = agt::gpu::Decoding{numbers.narrow(0, 0, 1), numbers.narrow(0, 1, n), numbers.narrow(0, 1 + n, n),
                                         numbers.narrow(0, 1 + 2 * n, numbers.numel() - 1 - 2 * n), decoding->longest};
      if (decoding->prompts) step.prompts = T(decoding->prompts);
    }
    *out = wrap(agt::cached_attention(T(q), k ? T(k) : Tensor(), v ? T(v) : Tensor(), T(kpool), T(vpool), T(slots), step, {window, scale, sinks_of(sinks, T(q))},
                                      s ? &*s : nullptr));
  });
}
// ids are 64-bit ids of a vocabulary, checked.
static const Tensor &ids_within(const Tensor &ids, int64_t vocabulary) {
  TORCH_CHECK(ids.dim() == 1 && ids.numel() > 0 && ids.scalar_type() == at::kLong, "barred ids are ", ids.sizes(), "; want [K], 64-bit");
  auto lo = ids.min().item<int64_t>(), hi = ids.max().item<int64_t>();
  TORCH_CHECK(lo >= 0 && hi < vocabulary, "barred id ", lo < 0 ? lo : hi, " is outside the vocabulary of ", vocabulary);
  return ids;
}
int agt_bar(agt_tensor *out, agt_tensor logits, agt_tensor barred, char **err) {
  return guard(err, [&] {
    auto &z = T(logits);
    TORCH_CHECK(z.dim() == 2, "logits are ", z.sizes(), "; want [N, V]");
    *out = wrap(z.index_fill(1, ids_within(T(barred), z.size(1)).to(z.device()), kBarred));
  });
}
int agt_head_logprobs(agt_tensor *lp, agt_tensor *entropy, agt_tensor hidden, agt_tensor weight, agt_tensor targets,
                      agt_tensor scale, agt_tensor barred, double cap, int64_t chunk, char **err) {
  return guard(err, [&] {
    auto &y = T(targets);
    TORCH_CHECK(T(hidden).dim() == 2 && T(weight).dim() == 2 && y.dim() == 1 && y.size(0) == T(hidden).size(0) &&
                    T(hidden).size(1) == T(weight).size(1),
                "hidden is ", T(hidden).sizes(), ", the weight is ", T(weight).sizes(), ", targets are ", y.sizes(),
                "; want [N, H], [V, H] and [N]");
    if (y.numel() > 0) {
      auto lo = y.min().item<int64_t>(), hi = y.max().item<int64_t>(), v = T(weight).size(0);
      TORCH_CHECK(lo >= 0 && hi < v, "token id ", lo < 0 ? lo : hi, " is outside the vocabulary of ", v);
    }
    TORCH_CHECK(chunk > 0, "a chunk of ", chunk, " rows");
    TORCH_CHECK(cap >= 0 && std::isfinite(cap), "logits are capped by ", cap);
    Tensor by;
    if (scale) {
      by = T(scale).to(acc_type(T(hidden).scalar_type())).contiguous();
      TORCH_CHECK(by.dim() == 1 && by.size(0) == y.size(0), "the scale is ", by.sizes(), ", targets are ", y.sizes(), "; want [N] and [N]");
      TORCH_CHECK(by.numel() == 0 || (by.min().item<double>() > 0 && std::isfinite(by.max().item<double>())),
                  "the scale of logits must be above 0 and finite");
      by = by.to(T(hidden).device());
    }
    Tensor not_drawn = barred ? ids_within(T(barred), T(weight).size(0)).to(T(hidden).device()) : Tensor();
    auto r = HeadLogprobs::apply(T(hidden), T(weight), y.to(T(hidden).device()), HeadRows{by, not_drawn, chunk, cap});
    *lp = wrap(r[0]);
    *entropy = wrap(r[1]);
  });
}
int agt_sample(agt_tensor logits, const agt_sampling *rows, int n, int32_t *ids, float *logprobs, char **err) {
  return guard(err, [&] {
    auto &l = T(logits);
    TORCH_CHECK(l.dim() == 2 && l.size(0) == n && l.size(1) > 0, "logits are ", l.sizes(), ", rows ", n);
    if (agt::gpu::have(l)) {
      agt::gpu::sample(l, rows, n, ids, logprobs);
      for (int i = 0; i < n; i++) TORCH_CHECK(std::isfinite(logprobs[i]), "the model's logits in row ", i, " are not finite");
      return;
    }
    Tensor z = l.to(at::kCPU, at::kFloat).contiguous();
    const float *p = z.const_data_ptr<float>();
    int64_t v = z.size(1);
    std::atomic<int64_t> bad{-1};
    at::parallel_for(0, n, 1, [&](int64_t b, int64_t e) {
      std::vector<float> scratch(v);
      for (int64_t i = b; i < e; i++) {
        agt::kernels().sample(p + i * v, v, rows[i], scratch.data(), ids + i, logprobs + i);
        if (!std::isfinite(logprobs[i])) bad = i;
      }
    });
    TORCH_CHECK(bad < 0, "the model's logits in row ", bad.load(), " are not finite");
  });
}
static std::atomic<bool> backward_ran{false};
int agt_backward(agt_tensor *xs, agt_tensor *grads, int n, char **err) {
  return guard(err, [&] {
    variable_list x, g;
    for (int i = 0; i < n; i++) {
      x.push_back(T(xs[i]));
      g.push_back(grads[i] ? T(grads[i]) : Tensor());
    }
    backward_ran = true;
    torch::autograd::backward(x, g);
  });
}
int agt_grad(agt_tensor *out, agt_tensor x, char **err) {
  return guard(err, [&] {
    auto g = T(x).grad();
    TORCH_CHECK(g.defined(), "the tensor of shape ", T(x).sizes(), " has no gradient");
    *out = wrap(g);
  });
}
int agt_has_grad(agt_tensor x) { return T(x).grad().defined(); }
int agt_clear_grad(agt_tensor x, char **err) {
  return guard(err, [&] { T(x).mutable_grad() = Tensor(); });
}
int agt_global_norm(agt_tensor *xs, int n, double *norm, char **err) {
  return guard(err, [&] {
    // Σx² in double over tensors: a sum of hundreds of millions of squares in
    // float would lose the small ones. One read for all of them.
    double total = 0;
    if (n > 0) {
      Tensor all = at::stack(at::_foreach_norm(list(xs, n), 2)).to(at::kCPU, at::kDouble);
      for (int i = 0; i < n; i++) total += std::pow(all.const_data_ptr<double>()[i], 2);
    }
    *norm = std::sqrt(total);
  });
}
int agt_scale_(agt_tensor *xs, int n, double factor, char **err) {
  return guard(err, [&] {
    c10::AutoGradMode off(false);
    if (n > 0) at::_foreach_mul_(list(xs, n), factor);
  });
}
int agt_adamw_(agt_tensor *params, agt_tensor *grads, agt_tensor *m, agt_tensor *v, int n, double lr, double beta1,
               double beta2, double eps, double weight_decay, double step, char **err) {
  return guard(err, [&] {
    if (n == 0) return;  // the fused kernel refuses an empty list
    c10::AutoGradMode off(false);
    auto p = list(params, n);
    std::vector<Tensor> steps(n, at::full({}, step, p[0].options().dtype(at::kFloat)));
    at::_fused_adamw_(p, list(grads, n), list(m, n), list(v, n), {}, steps, lr, beta1, beta2, weight_decay, eps, false, false);
  });
}
int agt_grad_mode(int on) {
  int was = at::GradMode::is_enabled();
  at::GradMode::set_enabled(on != 0);
  return was;
}
void agt_keep_memory(void) {
  agt_arena();
  // glibc gives freed memory back to the kernel, which hands it out again page
  // by page, cleared: a tenth of the time of a step that frees what the next
  // one allocates.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 1);  // the arenas of other threads drop their heaps whatever the threshold
}
// A thread takes the process's last number at its first parallel operation, whatever was
// set for it before: that first one is here.
void agt_set_threads(int n) {
  at::internal::lazy_init_num_threads();
  at::get_num_threads();  // libtorch's own copy of the flag
  at::set_num_threads(n);
}
int agt_threads(void) {
  at::internal::lazy_init_num_threads();
  return at::get_num_threads();
}
int agt_deterministic(int on) {
  auto &c = at::globalContext();
  int was = c.deterministicAlgorithms();
  c.setDeterministicAlgorithms(on != 0, /*warn_only=*/false);
  return was;
}
const char *agt_version(void) { return TORCH_VERSION; }
const char *agt_cpu_capability(void) {
  static std::string s = at::get_cpu_capability();
  return s.c_str();
}
const char *agt_lib_path(void) {
  static std::string s = [] {
    Dl_info info;
    // Any symbol of libtorch_cpu tells where it was loaded from.
    if (dladdr(reinterpret_cast<void *>(&at::get_num_threads), &info) && info.dli_fname) return std::string(info.dli_fname);
    return std::string("?");
  }();
  return s.c_str();
}
int agt_has_driver(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver) dlclose(driver);
  return driver != nullptr;
}
int agt_cuda_devices(const char *file, agt_cuda *found, char **why) {
  static std::string reason;
  static agt_cuda state = {};
  static int count = [&] {
    if (backward_ran) {
      reason = "libtorch's CUDA part must be loaded before the process's first training step: open the model on CUDA first";
      return 0;
    }
    state.asked = 1;
    // Before the first question about CUDA: the hooks are looked up once and kept.
    if (!dlopen(file, RTLD_NOW | RTLD_GLOBAL)) {
      const char *e = dlerror();
      reason = std::string("libtorch_cuda.so cannot be loaded: ") + (e ? e : "?");
      return 0;
    }
    state.loaded = 1;
    if (void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
      if (auto f = reinterpret_cast<int (*)(int *)>(dlsym(driver, "cuDriverGetVersion"))) f(&state.driver);
    if (auto f = reinterpret_cast<int (*)(int *)>(dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion"))) f(&state.runtime);
    try {
      auto &c = at::globalContext();
      // cuDNN's attention makes a plan for every new shape, about half a second each.
      c.setSDPUseCuDNN(false);
      // Partial sums in bfloat16 would set what was sampled in small batches apart from
      // what is trained in large ones.
      c.setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false, /*allow_splitk=*/true);
      // Warnings are for libtorch's own callers, as one at a thread's first product (2: errors alone).
      FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, 2);
      int n = int(at::detail::getCUDAHooks().deviceCount());
      if (n <= 0) reason = "libtorch has CUDA, but it found no device";
      return n < 0 ? 0 : n;
    } catch (const c10::Error &e) {
      reason = e.what_without_backtrace();
      return 0;
    } catch (const std::exception &e) {
      reason = e.what();
      return 0;
    }
  }();
  if (count == 0) *why = strdup(reason.c_str());
  *found = state;
  return count;
}
void agt_empty_cache(int device) {
  if (device_of(device).is_cpu()) return;
  try {
    const c10::OptionalDeviceGuard guard(device_of(device));  // it waits for a stream of the thread's device
    allocator_of(device)->emptyCache();
  } catch (...) {  // it is a kindness: what fails here fails again where it matters
  }
}
int agt_free_memory(int device, int64_t *bytes, char **err) {
  return guard(err, [&] { *bytes = int64_t(allocator_of(device)->getMemoryInfo(device_of(device).index()).first); });
}
int agt_peak_memory(int device, int64_t *allocated, int64_t *reserved, char **err) {
  return guard(err, [&] {
    auto all = size_t(c10::CachingAllocator::StatType::AGGREGATE);
    auto stats = allocator_of(device)->getDeviceStats(device_of(device).index());
    *allocated = stats.allocated_bytes[all].peak;
    *reserved = stats.reserved_bytes[all].peak;
  });
}
int agt_has_test_device(void) { return at::isPrivateUse1HooksRegistered(); }
int agt_throw(const char *message, char **err) {
  return guard(err, [&] { TORCH_CHECK(false, message); });
}
}
