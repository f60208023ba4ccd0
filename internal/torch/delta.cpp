//go:build libtorch

// The gated delta rule on a CPU by delta_kernels.h: what its kernels are called with, and which
// thread does what. A call computes one head of the keys over one tree of runs.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "delta_plan.h"
#include "tensors.h"

namespace agt {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The inputs as the kernels read them.
struct DeltaInputs {
  Tensor qkv, b, a, rate, dt_bias;
  DeltaHeads heads;

  static Tensor rows(const Tensor &x) { return x.stride(1) == 1 ? x : x.contiguous(); }
  DeltaInputs(const Tensor &qkv0, const Tensor &b0, const Tensor &a0, const Tensor &a_log, const Tensor &dt_bias0, const DeltaHeads &h)
      : qkv(qkv0.contiguous()), b(rows(b0)), a(rows(a0)), rate(a_log.to(at::kFloat).exp().neg().contiguous()),
        dt_bias(dt_bias0.to(at::kFloat).contiguous()), heads(h) {
    TORCH_CHECK(b.scalar_type() == qkv.scalar_type() && a.scalar_type() == qkv.scalar_type() && rate.numel() == h.value_heads &&
                    dt_bias.numel() == h.value_heads,
                "b is ", b.scalar_type(), ", a is ", a.scalar_type(), ", a_log is ", rate.sizes(), ", dt_bias is ", dt_bias.sizes());
  }

  DeltaArgs args(const DeltaTree &t) const {
    DeltaArgs d{};
    d.runs = t.runs.data(), d.n = int64_t(t.runs.size());
    d.parts = t.parts.empty() ? nullptr : t.parts.data(), d.n_parts = int64_t(t.parts.size());
    d.states = t.states, d.grads = t.grads;
    d.key_heads = heads.key_heads, d.value_heads = heads.value_heads, d.key_dim = heads.key_dim, d.value_dim = heads.value_dim;
    d.b_stride = b.stride(0), d.a_stride = a.stride(0);
    d.rate = rate.const_data_ptr<float>(), d.dt_bias = dt_bias.const_data_ptr<float>();
    return d;
  }

  // f(arguments, number of the tree, scratch) for each tree and head of the keys. Which thread
  // computes which changes no number.
  template <class Table, class F>
  void each(const Table &kn, const DeltaPlan &plan, F f) const {
    std::vector<DeltaArgs> args;
    int64_t scratch = 0;
    for (auto &t : plan.trees) {
      args.push_back(this->args(t));
      scratch = std::max(scratch, kn.delta_scratch(args.back()));
    }
    const int64_t items = int64_t(args.size()) * heads.key_heads;
    std::atomic<int64_t> next{0};
    at::parallel_for(0, std::min<int64_t>(at::get_num_threads(), items), 1, [&](int64_t, int64_t) {
      std::unique_ptr<float[]> memory(new float[scratch]);
      for (int64_t i; (i = next++) < items;) {
        DeltaArgs d = args[i / heads.key_heads];
        d.head = i % heads.key_heads;
        f(d, i / heads.key_heads, memory.get());
      }
    });
  }
};

Tensor delta_run(const DeltaInputs &x, const DeltaRuns &runs, const Tensor &pool) {
  DeltaPlan plan(runs, x.qkv.size(0), pool);
  for (auto &t : plan.trees) t.place_states();
  Tensor out = at::empty({x.qkv.size(0), x.heads.value_heads * x.heads.value_dim}, x.qkv.options());
  dispatch(x.qkv, "gated_delta", [&](auto &kn, auto st, auto) {
    using S = decltype(st);
    const S *qkv = in<S>(x.qkv), *b = in<S>(x.b), *a = in<S>(x.a);
    S *o = out_ptr<S>(out);
    x.each(kn, plan, [&](const DeltaArgs &d, int64_t, float *scratch) { kn.delta_forward(qkv, b, a, d, scratch, o); });
  });
  return out;
}

struct DeltaRule : torch::autograd::Function<DeltaRule> {
  static Tensor forward(AutogradContext *ctx, const Tensor &qkv, const Tensor &b, const Tensor &a, const Tensor &a_log, const Tensor &dt_bias,
                        const std::vector<int64_t> &heads, const std::vector<int64_t> &runs) {
    DeltaInputs x(qkv, b, a, a_log, dt_bias, {heads[0], heads[1], heads[2], heads[3]});
    ctx->save_for_backward({x.qkv, x.b, x.a, a_log, dt_bias});
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["runs"] = runs;
    std::vector<int32_t> narrow(runs.begin(), runs.end());
    return delta_run(x, {narrow.data(), int64_t(narrow.size()) / 4, nullptr, 0}, Tensor());
  }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    auto h = ctx->saved_data["heads"].toIntVector(), wide = ctx->saved_data["runs"].toIntVector();
    std::vector<int32_t> runs(wide.begin(), wide.end());
    DeltaInputs x(saved[0], saved[1], saved[2], saved[3], saved[4], {h[0], h[1], h[2], h[3]});
    DeltaPlan plan({runs.data(), int64_t(runs.size()) / 4, nullptr, 0}, x.qkv.size(0), Tensor());
    for (auto &t : plan.trees) t.cut();
    Tensor dout = grads[0].contiguous(), dqkv = at::empty_like(x.qkv);
    Tensor db = at::empty({x.b.size(0), x.b.size(1)}, x.b.options()), da = at::empty_like(db);
    // Each tree has sums of its own, which are added up in order.
    Tensor sums = at::zeros({int64_t(plan.trees.size()), 2, h[1]}, at::kDouble);
    double *sum = sums.data_ptr<double>();
    dispatch(x.qkv, "gated_delta", [&](auto &kn, auto st, auto) {
      using S = decltype(st);
      const S *qkv = in<S>(x.qkv), *b = in<S>(x.b), *a = in<S>(x.a), *g = in<S>(dout);
      S *gq = out_ptr<S>(dqkv), *gb = out_ptr<S>(db), *ga = out_ptr<S>(da);
      x.each(kn, plan, [&](const DeltaArgs &d, int64_t tree, float *scratch) {
        double *of = sum + tree * 2 * h[1];
        kn.delta_backward(qkv, b, a, g, d, scratch, DeltaGrads<S>{gq, gb, ga, of, of + h[1]});
      });
    });
    for (int64_t t = 1; t < int64_t(plan.trees.size()); t++)
      for (int64_t i = 0; i < 2 * h[1]; i++) sum[i] += sum[t * 2 * h[1] + i];
    auto head = [&](int64_t i, const Tensor &like) { return sums.select(0, 0).select(0, i).to(like.scalar_type()).view(like.sizes()); };
    return {dqkv, db, da, head(0, saved[3]), head(1, saved[4]), Tensor(), Tensor()};
  }
};

}  // namespace

bool delta_fused(const Tensor &qkv) { return native(qkv) && (qkv.scalar_type() == at::kFloat || qkv.scalar_type() == at::kBFloat16); }

Tensor delta_kernel(const Tensor &qkv, const Tensor &b, const Tensor &a, const Tensor &a_log, const Tensor &dt_bias, const DeltaHeads &h,
                    const DeltaRuns &runs, const Tensor &pool) {
  if (pool.defined()) {
    TORCH_CHECK(pool.scalar_type() == at::kFloat && pool.is_contiguous() && pool.dim() == 4 && pool.size(1) == h.value_heads &&
                    pool.size(2) == h.key_dim && pool.size(3) == h.value_dim,
                "the states are ", pool.sizes(), " in ", pool.scalar_type());
  } else if (at::GradMode::is_enabled()) {
    return DeltaRule::apply(qkv, b, a, a_log, dt_bias, std::vector<int64_t>{h.key_heads, h.value_heads, h.key_dim, h.value_dim},
                            std::vector<int64_t>(runs.runs, runs.runs + 4 * runs.n));
  }
  return delta_run({qkv, b, a, a_log, dt_bias, h}, runs, pool);
}

}  // namespace agt
