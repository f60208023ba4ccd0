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

#include "tensors.h"

namespace agt {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Numbers of places in scratch, used again when they are free.
struct Places {
  std::vector<int32_t> free;
  int32_t count = 0;
  int32_t take() {
    if (free.empty()) return count++;
    const int32_t i = free.back();
    free.pop_back();
    return i;
  }
};

// A run without a parent, and those that continue it.
struct DeltaTree {
  std::vector<DeltaRun> runs;
  std::vector<DeltaPart> parts;
  int64_t states = 0, grads = 0;  // places

  // The states that are in scratch at once: those that a later run continues. The last of these
  // takes its parent's place.
  void place_states() {
    std::vector<int> waiting(runs.size());
    for (auto &r : runs)
      if (r.parent >= 0) waiting[r.parent]++;
    Places places;
    for (size_t i = 0; i < runs.size(); i++) {
      DeltaRun &r = runs[i];
      if (r.parent >= 0 && --waiting[r.parent] == 0) places.free.push_back(runs[r.parent].state);
      if (r.len <= DELTA_FEW && waiting[i] == 0) continue;
      r.state = places.take();
      if (waiting[i] == 0) places.free.push_back(r.state);
    }
    states = places.count;
  }

  // The chunks of the runs. Backward goes through them from the last to the first: the gradient
  // of a state is the sum over the chunks that continue it, in that order.
  void cut() {
    std::vector<int32_t> last(runs.size());
    for (size_t i = 0; i < runs.size(); i++) {
      const DeltaRun &r = runs[i];
      int32_t parent = r.parent < 0 ? -1 : last[r.parent];
      for (int32_t at = 0; at < r.len; at += DELTA_CHUNK) {
        parts.push_back({r.start + at, std::min<int32_t>(DELTA_CHUNK, r.len - at), parent, -1, -1, -1, -1});
        parent = int32_t(parts.size()) - 1;
      }
      last[i] = parent;
    }
    states = 0;
    for (auto &p : parts)
      if (p.parent >= 0 && parts[p.parent].state < 0) parts[p.parent].state = int32_t(states++);
    Places places;
    for (size_t i = parts.size(); i-- > 0;) {
      DeltaPart &p = parts[i];
      if (p.parent < 0) {
        if (p.grad >= 0) places.free.push_back(p.grad);
        continue;
      }
      DeltaPart &parent = parts[p.parent];
      p.before = p.grad >= 0 ? p.grad : places.take();
      if (parent.grad < 0) {
        parent.grad = p.before;
      } else {
        p.sum = parent.grad;
        places.free.push_back(p.before);
      }
    }
    grads = places.count;
  }
};

struct DeltaPlan {
  std::vector<DeltaTree> trees;
  std::vector<float *> into;  // of all runs, which point here
  Tensor copies;              // of states that a run of another tree overwrites

  DeltaPlan(const DeltaRuns &of, int64_t rows, Tensor pool) {
    std::vector<std::pair<int32_t, int32_t>> where(of.n);  // of each run: its tree, and its number there
    int64_t row = 0;
    for (int64_t i = 0; i < of.n; i++) {
      const int32_t *r = of.runs + 4 * i;
      TORCH_CHECK(r[0] == row && r[1] > 0 && r[2] < i && r[2] >= -1, "run ", i, " does not follow the one before");
      row += r[1];
      if (r[2] < 0) trees.emplace_back();
      const int32_t tree = r[2] < 0 ? int32_t(trees.size()) - 1 : where[r[2]].first;
      where[i] = {tree, int32_t(trees[tree].runs.size())};
      trees[tree].runs.push_back({r[0], r[1], r[2] < 0 ? -1 : where[r[2]].second, -1, nullptr, nullptr, 0});
    }
    TORCH_CHECK(row == rows, "the runs have ", row, " tokens of ", rows);
    if (pool.defined()) pools(of, pool, where);
  }

  void pools(const DeltaRuns &of, Tensor pool, const std::vector<std::pair<int32_t, int32_t>> &where) {
    const int64_t slots = pool.size(0), each = pool.numel() / std::max<int64_t>(slots, 1);
    auto check = [&](int64_t slot) { TORCH_CHECK(slot >= 0 && slot < slots, "slot ", slot, " of ", slots); };
    std::vector<std::vector<int32_t>> saves(of.n);
    std::vector<int32_t> writer(slots, -1);  // the tree that writes a slot
    for (int64_t i = 0; i < of.n_saves; i++) {
      const int32_t run = of.saves[2 * i], slot = of.saves[2 * i + 1];
      check(slot);
      TORCH_CHECK(run >= 0 && run < of.n && writer[slot] < 0, "saved state ", i, " is of run ", run, " in slot ", slot);
      saves[run].push_back(slot);
      writer[slot] = where[run].first;
    }
    std::vector<int64_t> overwritten;
    for (int64_t i = 0; i < of.n; i++)
      if (of.runs[4 * i + 2] < 0) {
        const int32_t slot = of.runs[4 * i + 3];
        check(slot);
        if (writer[slot] >= 0 && writer[slot] != where[i].first) overwritten.push_back(slot);
      }
    if (!overwritten.empty()) copies = pool.index_select(0, at::tensor(overwritten));
    float *states = pool.data_ptr<float>(), *copy = overwritten.empty() ? nullptr : copies.data_ptr<float>();
    into.reserve(of.n_saves);
    for (int64_t i = 0; i < of.n; i++) {
      DeltaRun &r = trees[where[i].first].runs[where[i].second];
      if (r.parent < 0) {
        const int32_t slot = of.runs[4 * i + 3];
        r.from = states + slot * each;
        if (writer[slot] >= 0 && writer[slot] != where[i].first) r.from = copy, copy += each;
      }
      r.into = into.data() + into.size();
      r.saves = int64_t(saves[i].size());
      for (int32_t slot : saves[i]) into.push_back(states + slot * each);
    }
  }
};

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
