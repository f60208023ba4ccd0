// Attention of a decoder's step over the paged cache; decoder.cpp includes it.
#pragma once
#include "decoder.h"

namespace agt {

// What one thread does of a layer's attention: the projection is in Rows.mixed, the result goes to Rows.attended.
template <class S>
struct AttentionRun {
  Run<S> &run;
  const Attention &l;
  const int64_t projected;  // numbers of a row of the projection
  const Decoder &d = run.d;
  const Step &step = run.step;
  const Typed<S, float> &kn = run.kn;
  Rows<S> &b = run.b;

  // The new rows' queries, and their keys and values into the cache.
  void turn() {
    const int64_t hq = l.heads, hkv = l.kv_heads, dim = l.dim, block = l.kpool.size(1);
    S *kp = static_cast<S *>(l.kpool.data_ptr()), *vp = static_cast<S *>(l.vpool.data_ptr());
    run.share(step.rows, [&](int64_t r) {
      S *from = b.mixed.data() + r * projected, *k = from + l.query_rows(), *v = k + hkv * dim, *row = b.q.data() + r * hq * dim;
      for (int64_t h = 0; h < hq; h++) memcpy(row + h * dim, from + h * l.query_rows() / hq, dim * sizeof(S));
      auto norm = [&](S *x, int64_t heads, const at::Tensor &weight) {
        const int64_t together = l.qk_norm == AGT_NORM_ALL_HEADS ? heads : 1;
        kn.rms_norm(x, nullptr, run.of(weight), nullptr, x, heads / together, together * dim, d.eps, float(d.norm_offset));
      };
      if (l.qk_norm > 0) {
        norm(row, hq, l.q_norm);
        norm(k, hkv, l.k_norm);
      }
      if (l.rope >= 0) {
        const Rope &t = d.ropes[l.rope];
        const int64_t half = t.cos.size(1);
        const float *c = t.cos.const_data_ptr<float>() + step.positions[r] * half, *s = t.sin.const_data_ptr<float>() + step.positions[r] * half;
        kn.rope(row, c, s, row, 1, hq, dim, half, t.pairs, 1.f);
        kn.rope(k, c, s, k, 1, hkv, dim, half, t.pairs, 1.f);
      }
      const int64_t at = place(r, block) * hkv * dim;
      memcpy(kp + at, k, hkv * dim * sizeof(S));
      memcpy(vp + at, v, hkv * dim * sizeof(S));
    });
  }

  int64_t place(int64_t r, int64_t block) const {  // of row r in the cache
    int64_t lo = 0, hi = step.n - 1;               // the last segment that begins at r or before
    while (lo < hi) {
      int64_t mid = (lo + hi + 1) / 2;
      if (step.segs[4 * mid] <= r) lo = mid;
      else hi = mid - 1;
    }
    const int32_t *s = step.segs + 4 * lo;
    const int64_t at = s[2] - s[1] + (r - s[0]);
    return int64_t(step.blocks[s[3] + at / block]) * block + at % block;
  }

  // What a thread needs to look at chunks: the columns of some kv heads, and what they get of a chunk.
  struct Look {
    const Attention &l;
    const int64_t group, wide;
    std::vector<S> q;  // [heads, cols, dim]
    std::vector<int32_t> first, end;
    std::vector<float> m, z, acc;
    std::unique_ptr<char, decltype(&std::free)> scratch;
    int64_t cols = 0, head = 0, heads = 0;

    // Columns of all heads, where they are few, or of one head.
    static int64_t most(const Attention &l) { return std::max(ATTEND_COLS, ATTEND_FEW * l.kv_heads); }

    explicit Look(const Attention &l)
        : l(l), group(l.heads / l.kv_heads), wide(AttendArgs::wide(l.dim)), q(most(l) * l.dim), first(ATTEND_COLS), end(ATTEND_COLS),
          m(most(l)), z(most(l)), acc(most(l) * wide),
          scratch(static_cast<char *>(std::aligned_alloc(64, (AttendArgs::scratch(l.kv_heads, l.dim, sizeof(S)) + 63) / 64 * 64)), &std::free) {}

    // f() for the kv heads from..from+n-1, once for all of them where the columns of n_rows rows are few.
    // row(r) is the number of the r-th of these rows.
    template <class R, class F>
    void each(const S *queries, const std::vector<AttendPlan::Row> &plan, int64_t from, int64_t n, int64_t n_rows, R row, F f) {
      cols = n_rows * group;
      for (int64_t r = 0; r < n_rows; r++) {
        std::fill_n(first.data() + r * group, group, plan[row(r)].first);
        std::fill_n(end.data() + r * group, group, plan[row(r)].end);
      }
      heads = AttendArgs::few(cols, l.dim) ? n : 1;
      for (head = from; head < from + n; head += heads) {
        for (int64_t h = 0; h < heads; h++)
          for (int64_t r = 0; r < n_rows; r++)
            memcpy(q.data() + (h * cols + r * group) * l.dim, queries + (row(r) * l.heads + (head + h) * group) * l.dim, group * l.dim * sizeof(S));
        f();
      }
    }
    void at(const Typed<S, float> &kn, const int32_t *blocks, int64_t from, int64_t to, int64_t next) {
      const double scale = l.scale != 0 ? l.scale : 1 / std::sqrt(double(l.dim));
      AttendArgs a{blocks, l.kpool.size(1), l.kv_heads, head, heads, l.dim, from, to, cols, next, first.data(), end.data(), float(scale)};
      kn.attend(q.data(), static_cast<const S *>(l.kpool.const_data_ptr()), static_cast<const S *>(l.vpool.const_data_ptr()), a,
                scratch.get(), m.data(), z.data(), acc.data());
    }
    // Of column i of the present heads, [heads, cols]: its row of the call, and the query head.
    int64_t row(int64_t i) const { return i % cols / group; }
    int64_t query_head(int64_t i) const { return (head + i / cols) * group + i % cols % group; }
  };

  // What a query has of some chunks: the largest score, the sum of the weights, and that of the values.
  struct Sum {
    float m, z, acc[1];  // [wide]
  };
  Sum *partial(int64_t i, int64_t head) {
    return reinterpret_cast<Sum *>(b.partials.get() + (i * l.heads + head) * (2 + AttendArgs::wide(l.dim)));
  }

  void attend() {
    const AttendPlan &plan = b.plans.at(l.plan);
    const int64_t group = l.heads / l.kv_heads, wide = AttendArgs::wide(l.dim);
    const float *sinks = l.sinks.defined() ? l.sinks.const_data_ptr<float>() : nullptr;
    const S *queries = b.q.data();
    Look look(l);
    if (!plan.shared.empty())
      run.share(int64_t(plan.shared.size()), [&](int64_t i) {
        const auto &p = plan.shared[i];
        const int32_t *rows = plan.members.data() + p.from, *blocks = step.blocks + step.segs[4 * plan.rows[rows[0]].seg + 3];
        look.each(queries, plan.rows, p.head, p.heads, p.n, [&](int64_t r) { return int64_t(rows[r]); }, [&] {
          for (int64_t k = p.chunk; k < p.chunk + p.chunks; k++) {
            const int64_t to = (k + 1) * ATTEND_KEYS;
            look.at(kn, blocks, k * ATTEND_KEYS, to, k + 1 < p.chunk + p.chunks ? to + ATTEND_KEYS : 0);
            for (int64_t c = 0; c < look.heads * look.cols; c++) {
              Sum *sum = partial(plan.rows[rows[look.row(c)]].partial + k, look.query_head(c));
              sum->m = look.m[c];
              sum->z = look.z[c];
              memcpy(sum->acc, look.acc.data() + c * wide, wide * sizeof(float));
            }
          }
        });
      });
    std::vector<float> m(Look::most(l)), z(Look::most(l)), acc(Look::most(l) * wide);
    run.share(int64_t(plan.rest.size()), [&](int64_t i) {
      const auto &p = plan.rest[i];
      const AttendPlan::Row *rows = plan.rows.data() + p.from;
      const int32_t *blocks = step.blocks + step.segs[4 * rows[0].seg + 3];
      look.each(queries, plan.rows, p.head, p.heads, p.n, [&](int64_t r) { return p.from + r; }, [&] {
        const int64_t n = look.heads * look.cols, end = rows[p.n - 1].end;
        std::fill_n(m.data(), n, -1e30f);
        std::fill_n(z.data(), n, 0.f);
        std::fill_n(acc.data(), n * wide, 0.f);
        for (int64_t c = 0; c < n; c++) {
          const AttendPlan::Row &row = rows[look.row(c)];
          for (int64_t k = row.first / ATTEND_KEYS; k < p.chunk; k++) {
            const Sum *x = partial(row.partial + k, look.query_head(c));
            kernels().attend_add(&m[c], &z[c], &acc[c * wide], x->m, x->z, x->acc, wide);
          }
        }
        for (int64_t k = p.chunk; k < p.chunk + p.chunks; k++) {
          look.at(kn, blocks, k * ATTEND_KEYS, std::min((k + 1) * ATTEND_KEYS, end), std::min((k + 2) * ATTEND_KEYS, end));
          for (int64_t c = 0; c < n; c++)
            kernels().attend_add(&m[c], &z[c], &acc[c * wide], look.m[c], look.z[c], &look.acc[c * wide], wide);
        }
        for (int64_t c = 0; c < n; c++) {
          const int64_t r = p.from + look.row(c), h = look.query_head(c);
          if (sinks) z[c] += std::exp(sinks[h] - m[c]);
          S *to = b.attended.data() + (r * l.heads + h) * l.dim;
          const float inv = 1 / z[c];
          for (int64_t d = 0; d < l.dim; d++) put(to + d, acc[c * wide + d] * inv);
          if (l.gated) kn.sigmoid_mul(to, b.mixed.data() + r * projected + (2 * h + 1) * l.dim, l.dim);
        }
      });
    });
  }
};

}  // namespace agt
