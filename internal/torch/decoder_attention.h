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
        const int64_t together = l.qk_norm == 2 ? heads : 1;
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

  // What a thread needs to look at a chunk: columns, and what they get.
  struct Look {
    const Attention &l;
    const int64_t group, wide;
    std::vector<S> q;
    std::vector<int32_t> first, end;
    std::vector<float> m, z, acc;
    std::unique_ptr<char, decltype(&std::free)> scratch;
    int64_t cols = 0;

    explicit Look(const Attention &l)
        : l(l), group(l.heads / l.kv_heads), wide(AttendArgs::wide(l.dim)), q(ATTEND_COLS * l.dim), first(ATTEND_COLS), end(ATTEND_COLS),
          m(ATTEND_COLS), z(ATTEND_COLS), acc(ATTEND_COLS * wide),
          scratch(static_cast<char *>(std::aligned_alloc(64, (AttendArgs::scratch(l.dim, sizeof(S)) + 63) / 64 * 64)), &std::free) {}

    void add(const S *queries, const AttendPlan::Row &r) {  // of one row, for the heads of one kv head
      memcpy(q.data() + cols * l.dim, queries, group * l.dim * sizeof(S));
      for (int64_t g = 0; g < group; g++, cols++) {
        first[cols] = r.first;
        end[cols] = r.end;
      }
    }
    void at(const Typed<S, float> &kn, const int32_t *blocks, int64_t head, int64_t from, int64_t to) {
      const double scale = l.scale != 0 ? l.scale : 1 / std::sqrt(double(l.dim));
      AttendArgs a{blocks, l.kpool.size(1), l.kv_heads, head, l.dim, from, to, cols, first.data(), end.data(), float(scale)};
      kn.attend(q.data(), static_cast<const S *>(l.kpool.const_data_ptr()), static_cast<const S *>(l.vpool.const_data_ptr()), a,
                scratch.get(), m.data(), z.data(), acc.data());
    }
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
        for (int64_t head = p.head; head < p.head + p.heads; head++) {
          look.cols = 0;
          for (int64_t r = 0; r < p.n; r++) look.add(queries + (rows[r] * l.heads + head * group) * l.dim, plan.rows[rows[r]]);
          look.at(kn, blocks, head, p.chunk * ATTEND_KEYS, (p.chunk + 1) * ATTEND_KEYS);
          for (int64_t c = 0; c < look.cols; c++) {
            Sum *to = partial(plan.rows[rows[c / group]].partial + p.chunk, head * group + c % group);
            to->m = look.m[c];
            to->z = look.z[c];
            memcpy(to->acc, look.acc.data() + c * wide, wide * sizeof(float));
          }
        }
      });
    std::vector<float> m(ATTEND_COLS), z(ATTEND_COLS), acc(ATTEND_COLS * wide);
    run.share(int64_t(plan.rest.size()), [&](int64_t i) {
      const auto &p = plan.rest[i];
      const AttendPlan::Row *rows = plan.rows.data() + p.from;
      const int32_t *blocks = step.blocks + step.segs[4 * rows[0].seg + 3];
      for (int64_t head = p.head; head < p.head + p.heads; head++) {
        look.cols = 0;
        for (int64_t r = 0; r < p.n; r++) look.add(queries + ((p.from + r) * l.heads + head * group) * l.dim, rows[r]);
        std::fill_n(m.data(), look.cols, -1e30f);
        std::fill_n(z.data(), look.cols, 0.f);
        std::fill_n(acc.data(), look.cols * wide, 0.f);
        for (int64_t c = 0; c < look.cols; c++)
          for (int64_t k = rows[c / group].first / ATTEND_KEYS; k < p.chunk; k++) {
            const Sum *x = partial(rows[c / group].partial + k, head * group + c % group);
            kernels().attend_add(&m[c], &z[c], &acc[c * wide], x->m, x->z, x->acc, wide);
          }
        for (int64_t k = p.chunk; k < p.chunk + p.chunks; k++) {
          look.at(kn, blocks, head, k * ATTEND_KEYS, std::min<int64_t>((k + 1) * ATTEND_KEYS, rows[p.n - 1].end));
          for (int64_t c = 0; c < look.cols; c++)
            kernels().attend_add(&m[c], &z[c], &acc[c * wide], look.m[c], look.z[c], &look.acc[c * wide], wide);
        }
        for (int64_t c = 0; c < look.cols; c++) {
          const int64_t h = head * group + c % group;
          if (sinks) z[c] += std::exp(sinks[h] - m[c]);
          S *to = b.attended.data() + ((p.from + c / group) * l.heads + h) * l.dim;
          const float inv = 1 / z[c];
          for (int64_t d = 0; d < l.dim; d++) put(to + d, acc[c * wide + d] * inv);
          if (l.gated) kn.sigmoid_mul(to, b.mixed.data() + (p.from + c / group) * projected + (2 * h + 1) * l.dim, l.dim);
        }
      }
    });
  }
};

}  // namespace agt
