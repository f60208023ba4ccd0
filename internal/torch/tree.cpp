//go:build libtorch

// Attention over a packed tree on a CPU: one pass over all nodes, forward and
// backward, where libtorch's own attention would be called, and its keys joined,
// for each node.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <atomic>
#include <cmath>
#include <vector>

#include "tensors.h"

namespace agt {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Work {
  TreeArgs args;
  int64_t cost;  // blocks of keys
};

// Plan is what the kernels are called with, for one head of the keys.
struct Plan {
  std::vector<std::vector<int32_t>> paths;  // of each node: start and length of its ancestors, the root first
  std::vector<int32_t> own;                 // of each token: where its node begins
  std::vector<Work> work;

  Plan(const Tensor &q, const Tensor &k, const Tensor &v, const int32_t *nodes, int n, Look look) : paths(n), own(q.size(0)) {
    const int64_t group = q.size(1) / k.size(1), dim = q.size(2);
    std::vector<int64_t> depth(n);
    std::vector<bool> leaf(n, true);
    for (int i = 0; i < n; i++) {
      const int32_t start = nodes[3 * i], len = nodes[3 * i + 1], parent = nodes[3 * i + 2];
      for (int32_t t = start; t < start + len; t++) own[t] = start;
      if (parent < 0) continue;
      leaf[parent] = false;
      paths[i] = paths[parent];
      paths[i].push_back(nodes[3 * parent]);
      paths[i].push_back(nodes[3 * parent + 1]);
      depth[i] = depth[parent] + nodes[3 * parent + 1];
    }
    for (int i = 0; i < n;) {
      int64_t len = nodes[3 * i + 1];
      int next = i + 1;
      // Neighbouring leaves of one parent see the same keys but for their own:
      // short ones share their columns.
      while (leaf[i] && next < n && leaf[next] && nodes[3 * next + 2] == nodes[3 * i + 2] &&
             (len + nodes[3 * next + 1]) * group <= PREFILL_COLS)
        len += nodes[3 * next++ + 1];
      for (int64_t c = 0; c < len * group; c += PREFILL_COLS) {
        TreeArgs a{};
        a.path = paths[i].data();
        a.path_len = int64_t(paths[i].size()) / 2;
        a.own = own.data();
        a.kv_heads = k.size(1);
        a.group = group;
        a.dim = dim;
        a.window = look.window;
        a.depth = depth[i];
        a.first_token = nodes[3 * i];
        a.first_col = c;
        a.cols = std::min<int64_t>(PREFILL_COLS, len * group - c);
        a.k_stride = k.stride(0);
        a.v_stride = v.stride(0);
        a.scale = look.scale_of(q);
        work.push_back({a, 2 + (depth[i] + 63) / 64 + ((c + a.cols) / group + 63) / 64});
      }
      i = next;
    }
  }
};

// Rows may stand apart (q, k and v are parts of one matrix), heads may not.
Tensor rows_of(const Tensor &x) {
  return x.stride(2) == 1 && x.stride(1) == x.size(2) ? x : x.contiguous();
}

struct TreeAttention : torch::autograd::Function<TreeAttention> {
  static Tensor run(const Tensor &q, const Tensor &k, const Tensor &v, const int32_t *nodes, int n, Look look, Tensor &lse) {
    Plan plan(q, k, v, nodes, n, look);
    Tensor out = at::empty_like(q);
    lse = at::empty({q.size(0), q.size(1)}, q.options().dtype(at::kFloat));
    dispatch(q, "tree_attention", [&](auto &kn, auto st, auto) {
      using S = decltype(st);
      const int64_t items = int64_t(plan.work.size()) * k.size(1);
      const S *qp = in<S>(q), *kp = in<S>(k), *vp = in<S>(v);
      S *op = out_ptr<S>(out);
      float *lp = lse.data_ptr<float>();
      std::atomic<int64_t> next{0};
      at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) {
        std::vector<float> scratch(TreeArgs::forward_scratch(q.size(2)));
        for (int64_t w; (w = next++) < items;) {
          TreeArgs a = plan.work[w / k.size(1)].args;
          a.head = w % k.size(1);
          kn.tree_forward(qp, kp, vp, a, scratch.data(), op, lp);
        }
      });
    });
    return out;
  }

  static Tensor forward(AutogradContext *ctx, const Tensor &q0, const Tensor &k0, const Tensor &v0, const std::optional<Tensor> &sinks,
                        const std::vector<int64_t> &nodes, int64_t window, double scale) {
    Tensor q = q0.contiguous(), k = rows_of(k0), v = rows_of(v0), lse;
    std::vector<int32_t> narrow(nodes.begin(), nodes.end());
    Tensor out = run(q, k, v, narrow.data(), int(narrow.size() / 3), {window, scale}, lse);
    if (sinks) {
      Sunk s(out, lse, *sinks);
      out = s.out;
      lse = s.lse;
    }
    ctx->save_for_backward({q, k, v, out, lse, sinks.value_or(Tensor())});
    ctx->saved_data["nodes"] = nodes;
    ctx->saved_data["window"] = window;
    ctx->saved_data["scale"] = scale;
    return out;
  }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &lse = saved[4];
    Tensor dout = grads[0].contiguous();
    auto wide = ctx->saved_data["nodes"].toIntVector();
    std::vector<int32_t> nodes(wide.begin(), wide.end());
    Plan plan(q, k, v, nodes.data(), int(nodes.size() / 3), {ctx->saved_data["window"].toInt(), ctx->saved_data["scale"].toDouble()});
    const int64_t T = q.size(0), heads = k.size(1), dim = q.size(2), items = int64_t(plan.work.size()) * heads;
    Tensor dq = at::empty_like(q), dk = at::empty(k.sizes(), k.options()), dv = at::empty(v.sizes(), v.options());
    // Each thread has a run of items, head after head, of about equal cost, and
    // sums of its own for the heads that it touches. They are added up in order:
    // the result does not depend on which thread ended first.
    int64_t total = 0;
    for (auto &w : plan.work) total += w.cost;
    total *= heads;
    const int64_t parts = std::min<int64_t>(at::get_num_threads(), items);
    std::vector<int64_t> begin{0};
    for (int64_t i = 0, sum = 0; i < items && int64_t(begin.size()) < parts; i++) {
      sum += plan.work[i % plan.work.size()].cost;
      if (sum * parts >= total * int64_t(begin.size())) begin.push_back(i + 1);
    }
    while (int64_t(begin.size()) <= parts) begin.push_back(items);
    begin[parts] = items;
    struct Sums { int64_t head, part; };
    std::vector<Sums> sums;
    std::vector<int64_t> first(parts);  // of a part, in sums
    const int64_t per = int64_t(plan.work.size());
    for (int64_t p = 0; p < parts; p++) {
      first[p] = int64_t(sums.size());
      for (int64_t h = begin[p] / per; h * per < begin[p + 1]; h++) sums.push_back({h, p});
    }
    Tensor acc = at::empty({int64_t(sums.size()), 2, T, dim}, q.options().dtype(at::kFloat));
    float *ap = acc.data_ptr<float>();
    dispatch(q, "tree_attention", [&](auto &kn, auto st, auto) {
      using S = decltype(st);
      const S *qp = in<S>(q), *kp = in<S>(k), *vp = in<S>(v), *op = in<S>(out), *gp = in<S>(dout);
      const float *lp = lse.const_data_ptr<float>();
      S *dqp = out_ptr<S>(dq), *dkp = out_ptr<S>(dk), *dvp = out_ptr<S>(dv);
      at::parallel_for(0, parts, 1, [&](int64_t b, int64_t e) {
        std::vector<float> scratch(TreeArgs::backward_scratch(dim));
        for (int64_t p = b; p < e; p++) {
          int64_t h0 = begin[p] / per, slots = (p + 1 < parts ? first[p + 1] : int64_t(sums.size())) - first[p];
          std::fill_n(ap + first[p] * 2 * T * dim, slots * 2 * T * dim, 0.f);
          for (int64_t i = begin[p]; i < begin[p + 1]; i++) {
            TreeArgs a = plan.work[i % per].args;
            a.head = i / per;
            float *s = ap + (first[p] + a.head - h0) * 2 * T * dim;
            kn.tree_backward(qp, kp, vp, op, gp, lp, a, scratch.data(), dqp, s, s + T * dim);
          }
        }
      });
      at::parallel_for(0, T, 64, [&](int64_t b, int64_t e) {
        std::vector<const float *> of;
        for (int64_t h = 0; h < heads; h++) {
          of.clear();
          for (size_t s = 0; s < sums.size(); s++)
            if (sums[s].head == h) of.push_back(ap + int64_t(s) * 2 * T * dim);
          kn.tree_sum(of.data(), int64_t(of.size()), b, e, T, dim, heads, h, dkp, dvp);
        }
      });
    });
    Tensor ds = saved[5].defined() ? sinks_gradient(saved[5], lse, out, dout) : Tensor();
    return {dq, dk, dv, ds, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor tree_kernel(const Tensor &q, const Tensor &k, const Tensor &v, const int32_t *nodes, int n, Look look) {
  if (at::GradMode::is_enabled())
    return TreeAttention::apply(q, k, v, maybe(look.sinks), std::vector<int64_t>(nodes, nodes + 3 * n), look.window, look.scale);
  Tensor lse, out = TreeAttention::run(q.contiguous(), rows_of(k), rows_of(v), nodes, n, look, lse);
  return look.sinks.defined() ? Sunk(out, lse, look.sinks).out : out;
}

}  // namespace agt
