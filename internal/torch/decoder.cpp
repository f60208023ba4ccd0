//go:build libtorch

// One step of a plain decoder on a CPU, from token ids to logits, in one call: the threads
// start once, and meet at a barrier between two operations. What it computes, and where it
// rounds, is what the operations of shim.cpp do one by one; see network.hidden in package
// policy for the order.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <immintrin.h>
#include <omp.h>
#include <sched.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "attend_plan.h"
#include "guard.h"
#include "quant.h"
#include "shim.h"
#include "tensors.h"

namespace at::native {  // of libtorch, in none of its headers
void *data_ptr_from_mkldnn(const Tensor &);
int64_t nbytes_from_mkldnn(const Tensor &);
}  // namespace at::native

namespace agt {
namespace {

using at::Tensor;

constexpr int64_t PANEL = 64;

// A weight [n, k] in panels; see panels.inc, and quant.h for one as a GGUF has it.
struct Weight {
  const void *data = nullptr;
  const QuantPanel *quant = nullptr;
  int64_t n = 0, k = 0, stride = 0;  // numbers of a panel
  Tensor hold, bias;
};

// Whether a packed weight is in panels that a kernel of ours reads: whether its numbers are where
// they would be, in every row and column of w at least once.
bool in_panels(const Tensor &packed, const Tensor &w) {
  if (!packed.is_mkldnn() || w.dim() != 2 || !native(w)) return false;
  const bool f32 = w.scalar_type() == at::kFloat;
  if (!f32 && w.scalar_type() != at::kBFloat16) return false;
  if (f32 ? !kernels().f.panel : !kernels().b.panel) return false;
  const int64_t n = w.size(0), k = w.size(1), group = f32 ? 1 : 2, size = 4 / group, panels = (n + PANEL - 1) / PANEL;
  const int64_t bytes = at::native::nbytes_from_mkldnn(packed);
  if (k % 2 != 0 || bytes % (panels * PANEL * size) != 0 || bytes / (panels * PANEL * size) < k) return false;
  const int64_t stride = bytes / size / panels;
  Tensor plain = w.contiguous();
  const char *got = static_cast<const char *>(at::native::data_ptr_from_mkldnn(packed)), *want = static_cast<const char *>(plain.const_data_ptr());
  auto same = [&](int64_t row, int64_t col) {
    const int64_t at = row / PANEL * stride + (col / group * PANEL + row % PANEL) * group + col % group;
    return memcmp(got + at * size, want + (row * k + col) * size, size_t(size)) == 0;
  };
  for (int64_t i = 0; i < std::max(n, k); i++)
    for (int64_t j : {i, i * 7 + 3, i * 31 + 17})
      if (!same(i % n, j % k)) return false;
  return true;
}

Weight weight_of(const Tensor &w, const Tensor &bias) {
  Weight out;
  if (bias.defined()) out.bias = bias.to(at::kFloat).contiguous();
  out.hold = w;
  if (w.scalar_type() == at::kByte) {
    QuantHead head;
    out.data = w.const_data_ptr();
    memcpy(&head, out.data, sizeof head);
    TORCH_CHECK(head.magic == QuantHead::MAGIC, "decoder: these bytes are no weight");
    out.quant = reinterpret_cast<const QuantPanel *>(static_cast<const char *>(out.data) + sizeof head);
    out.n = head.n;
    out.k = head.k;
    return out;
  }
  out.n = w.size(0);
  out.k = w.size(1);
  int64_t panels = (out.n + PANEL - 1) / PANEL, size = w.scalar_type() == at::kFloat ? 4 : 2;
  out.data = at::native::data_ptr_from_mkldnn(w);
  out.stride = at::native::nbytes_from_mkldnn(w) / size / panels;
  return out;
}

struct Layer {
  Tensor before_attention, after_attention, before_mlp, after_mlp, q_norm, k_norm, sinks, kpool, vpool;
  Weight qkv, o, gate_up, down;
  int64_t heads, kv_heads, dim, window, rope, qk_norm;
  double scale;
  size_t plan;  // of Rows.plans
};

struct Rope {
  Tensor cos, sin;
  bool pairs;
};

struct Decoder {
  std::vector<Layer> layers;
  std::vector<Rope> ropes;
  std::vector<size_t> kinds;  // a layer of each kind of attention
  Tensor embed, norm;
  Weight head;
  double embed_scale, residual_scale, eps, norm_offset;
};

// Threads that meet. A thread that waits spins, because the others are nearly there, and
// then lets others run, because one of them may have no processor.
class Team {
 public:
  explicit Team(int n) : n_(n) {}
  void meet() {
    int phase = phase_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_) {
      arrived_.store(0, std::memory_order_relaxed);
      next_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      return;
    }
    for (int i = 0; phase_.load(std::memory_order_acquire) == phase; i++) {
      if (i < 4096) _mm_pause();
      else sched_yield();
    }
  }
  // The next of n pieces of work that nobody has; n or more: there is none.
  int64_t take() { return next_.fetch_add(1, std::memory_order_relaxed); }

 private:
  const int n_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> phase_{0};
  alignas(64) std::atomic<int64_t> next_{0};
};

// What a step is told. segs: n quadruples of first row, rows, context with them, first of the blocks.
struct Step {
  const int32_t *ids, *positions, *segs, *blocks, *wanted;
  int64_t rows, n, n_wanted;
};

// How many numbers all partial results of a layer's attention may have: 256 MB.
constexpr int64_t MOST_PARTIALS = 64 << 20;

// The numbers of a step, which all threads work on.
template <class S>
struct Rows {
  std::vector<S> x, y, h, qkv, q, attended, act, both;
  std::vector<AttendPlan> plans;
  std::unique_ptr<float[]> partials;
  std::vector<int16_t> narrow;  // the input of a product with a weight of a GGUF
  std::vector<float> narrow_scales, narrow_sums;
  Rows(const Decoder &d, const Step &step, int threads) {
    int64_t sums = 0;
    for (size_t k = 0; k < d.kinds.size(); k++) {
      const Layer &l = d.layers[d.kinds[k]];
      const int64_t each = l.heads * (2 + AttendArgs::wide(l.dim));
      plans.emplace_back(step.segs, step.n, step.blocks, l.kpool.size(1), l.kv_heads, l.heads / l.kv_heads, l.window, threads,
                         MOST_PARTIALS / each);
      sums = std::max(sums, plans.back().partials * each);
    }
    partials.reset(new float[sums]);
    const int64_t n = step.rows;
    int64_t hidden = d.embed.size(1), wide = 0, queries = 0, inner = 0, longest = 0;
    auto inputs = [&](const Weight &w) { longest = std::max(longest, w.quant ? w.k : 0); };
    inputs(d.head);
    for (auto &l : d.layers) {
      for (auto *w : {&l.qkv, &l.o, &l.gate_up, &l.down}) inputs(*w);
      wide = std::max(wide, l.qkv.n);
      queries = std::max(queries, l.heads * l.dim);
      inner = std::max(inner, l.down.k);
    }
    for (auto *v : {&x, &y, &h}) v->resize(n * hidden);
    qkv.resize(n * wide);
    for (auto *v : {&q, &attended}) v->resize(n * queries);
    act.resize(n * inner);
    narrow.resize(n * longest);
    narrow_scales.resize(n * longest / 32);
    narrow_sums.resize(n * longest / 16);
    for (auto &l : d.layers)
      if (l.down.k % PANEL != 0) both.resize(n * 2 * inner);
  }
};

inline float get(float v) { return v; }
inline float get(bf16 v) {
  uint32_t u = uint32_t(v.bits) << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
inline void put(float *p, float f) { *p = f; }
inline void put(bf16 *p, float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  p->bits = uint16_t((u & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
}

// What one thread does of a step. All do the same calls in the same order.
template <class S>
struct Run {
  const Decoder &d;
  const Step &step;
  const Typed<S, float> &kn;
  Team &team;
  const int threads;
  Rows<S> &b;
  const int64_t hidden;
  int64_t rows;  // of x: those that are wanted, once the last layer's attention is done

  Run(const Decoder &d, const Step &step, const Typed<S, float> &kn, Team &team, int threads, Rows<S> &b)
      : d(d), step(step), kn(kn), team(team), threads(threads), b(b), hidden(d.embed.size(1)), rows(step.rows) {}

  template <class F>
  void share(int64_t n, F f) {  // f(i) for all i < n, and everybody knows the results
    for (int64_t i; (i = team.take()) < n;) f(i);
    team.meet();
  }

  // A product in pieces: a panel, which is read as a whole because that is what memory does
  // best, for all rows or, where there are few panels, for a part of the rows.
  struct Pieces {
    int64_t panels, parts, rows;
    Pieces(int64_t panels, int64_t rows, int threads)
        : panels(panels), parts(rows >= 12 && panels < 16 * threads ? 2 : 1), rows(rows) {}
    // f(panel, first row, rows of at most 48) for the pieces of i.
    template <class F>
    void each(int64_t i, F f) const {
      const int64_t end = rows * (i % parts + 1) / parts;
      for (int64_t r = rows * (i % parts) / parts; r < end; r += 48) f(i / parts, r, std::min<int64_t>(48, end - r));
    }
  };

  // The input of a product, as a weight of a GGUF takes it.
  void narrow(const Weight &w, const S *in) {
    if constexpr (std::is_same_v<S, bf16>)
      if (w.quant) share(rows, [&](int64_t r) { kernels().quant_row(in + r * w.k, w.k, from_row(w, r)); });
  }
  QuantRows from_row(const Weight &w, int64_t r) { return {&b.narrow[r * w.k], &b.narrow_scales[r * (w.k / 32)], &b.narrow_sums[r * (w.k / 16)]}; }

  // y [m, 64] = the rows r0..r0+m-1 of in by panel p of w.
  void panel(const Weight &w, const S *in, int64_t p, int64_t r0, int64_t m, float *y) {
    if (w.quant) kernels().quant_panel(from_row(w, r0), m, w.k, w.quant[p], static_cast<const char *>(w.data), y);
    else kn.panel(in + r0 * w.k, w.k, m, static_cast<const S *>(w.data) + p * w.stride, w.k, y);
  }

  // out [rows, ld] = in [rows, w.k]·w.
  void product(const Weight &w, const S *in, S *out, int64_t ld) {
    narrow(w, in);
    const Pieces pieces((w.n + PANEL - 1) / PANEL, rows, threads);
    const float *bias = w.bias.defined() ? w.bias.const_data_ptr<float>() : nullptr;
    thread_local std::vector<float> sums(48 * PANEL);
    share(pieces.panels * pieces.parts, [&](int64_t i) {
      pieces.each(i, [&](int64_t p, int64_t r0, int64_t m) {
        const int64_t n = std::min(PANEL, w.n - p * PANEL);
        panel(w, in, p, r0, m, sums.data());
        for (int64_t r = 0; r < m; r++) {
          S *to = out + (r0 + r) * ld + p * PANEL;
          const float *s = sums.data() + r * PANEL;
          for (int64_t c = 0; c < n; c++) put(to + c, bias ? s[c] + bias[p * PANEL + c] : s[c]);
        }
      });
    });
  }

  // act = silu(gate)·up: a panel of the one and the same of the other, where up begins a panel.
  void gated(const Weight &w, const S *in) {
    const int64_t f = w.n / 2;
    if (f % PANEL != 0) {
      product(w, in, b.both.data(), w.n);
      share(rows, [&](int64_t r) { kn.silu_mul(b.both.data() + r * w.n, b.act.data() + r * f, 1, f); });
      return;
    }
    narrow(w, in);
    const Pieces pieces(f / PANEL, rows, threads);
    const float *bias = w.bias.defined() ? w.bias.const_data_ptr<float>() : nullptr;
    thread_local std::vector<float> sums(2 * 48 * PANEL);
    share(pieces.panels * pieces.parts, [&](int64_t i) {
      pieces.each(i, [&](int64_t p, int64_t r0, int64_t m) {
        for (int64_t part = 0; part < 2; part++)
          panel(w, in, p + part * pieces.panels, r0, m, sums.data() + part * 48 * PANEL);
        for (int64_t r = 0; r < m; r++) {
          S both[2 * PANEL];
          for (int64_t part = 0; part < 2; part++)
            for (int64_t c = 0; c < PANEL; c++) {
              const float s = sums[(part * 48 + r) * PANEL + c];
              put(both + part * PANEL + c, bias ? s + bias[part * f + p * PANEL + c] : s);
            }
          kn.silu_mul(both, b.act.data() + (r0 + r) * f + p * PANEL, 1, PANEL);
        }
      });
    });
  }

  const S *of(const Tensor &t) const { return static_cast<const S *>(t.const_data_ptr()); }

  void times(S *row, int64_t n, double factor) {
    if (factor == 1) return;
    for (int64_t i = 0; i < n; i++) put(row + i, get(row[i]) * float(factor));
  }

  // x takes in y, what a sub-layer adds, if there is any; h is what the next one takes.
  void normed(bool add, const Tensor &after, const Tensor &before) {
    const float offset = float(d.norm_offset);
    share(rows, [&](int64_t r) {
      S *xr = b.x.data() + r * hidden, *yr = b.y.data() + r * hidden, *hr = b.h.data() + r * hidden;
      if (add) {
        if (after.defined()) kn.rms_norm(yr, nullptr, of(after), nullptr, yr, 1, hidden, d.eps, offset);
        times(yr, hidden, d.residual_scale);
      }
      if (before.defined()) {
        kn.rms_norm(xr, add ? yr : nullptr, of(before), xr, hr, 1, hidden, d.eps, offset);
        return;
      }
      if (add)
        for (int64_t i = 0; i < hidden; i++) put(xr + i, get(xr[i]) + get(yr[i]));
      memcpy(hr, xr, hidden * sizeof(S));
    });
  }

  // The new rows' queries, and their keys and values into the cache.
  void turn(const Layer &l) {
    const int64_t hq = l.heads, hkv = l.kv_heads, dim = l.dim, block = l.kpool.size(1);
    S *kp = static_cast<S *>(l.kpool.data_ptr()), *vp = static_cast<S *>(l.vpool.data_ptr());
    share(step.rows, [&](int64_t r) {
      S *row = b.qkv.data() + r * l.qkv.n, *k = row + hq * dim, *v = k + hkv * dim;
      if (l.qk_norm == 1) {
        kn.rms_norm(row, nullptr, of(l.q_norm), nullptr, row, hq, dim, d.eps, float(d.norm_offset));
        kn.rms_norm(k, nullptr, of(l.k_norm), nullptr, k, hkv, dim, d.eps, float(d.norm_offset));
      } else if (l.qk_norm == 2) {
        kn.rms_norm(row, nullptr, of(l.q_norm), nullptr, row, 1, hq * dim, d.eps, float(d.norm_offset));
        kn.rms_norm(k, nullptr, of(l.k_norm), nullptr, k, 1, hkv * dim, d.eps, float(d.norm_offset));
      }
      if (l.rope >= 0) {
        const Rope &t = d.ropes[l.rope];
        const int64_t half = t.cos.size(1);
        const float *c = t.cos.const_data_ptr<float>() + step.positions[r] * half, *s = t.sin.const_data_ptr<float>() + step.positions[r] * half;
        kn.rope(row, c, s, row, 1, hq, dim, half, t.pairs, 1.f);
        kn.rope(k, c, s, k, 1, hkv, dim, half, t.pairs, 1.f);
      }
      memcpy(b.q.data() + r * hq * dim, row, hq * dim * sizeof(S));
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
    const Layer &l;
    const int64_t group, wide;
    std::vector<S> q;
    std::vector<int32_t> first, end;
    std::vector<float> m, z, acc;
    std::unique_ptr<char, decltype(&std::free)> scratch;
    int64_t cols = 0;

    explicit Look(const Layer &l)
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
  Sum *partial(const Layer &l, int64_t i, int64_t head) {
    return reinterpret_cast<Sum *>(b.partials.get() + (i * l.heads + head) * (2 + AttendArgs::wide(l.dim)));
  }

  void attend(const Layer &l) {
    const AttendPlan &plan = b.plans.at(l.plan);
    const int64_t group = l.heads / l.kv_heads, wide = AttendArgs::wide(l.dim);
    const float *sinks = l.sinks.defined() ? l.sinks.const_data_ptr<float>() : nullptr;
    const S *queries = b.q.data();
    Look look(l);
    if (!plan.shared.empty())
      share(int64_t(plan.shared.size()), [&](int64_t i) {
        const auto &p = plan.shared[i];
        const int32_t *rows = plan.members.data() + p.from, *blocks = step.blocks + step.segs[4 * plan.rows[rows[0]].seg + 3];
        for (int64_t head = p.head; head < p.head + p.heads; head++) {
          look.cols = 0;
          for (int64_t r = 0; r < p.n; r++) look.add(queries + (rows[r] * l.heads + head * group) * l.dim, plan.rows[rows[r]]);
          look.at(kn, blocks, head, p.chunk * ATTEND_KEYS, (p.chunk + 1) * ATTEND_KEYS);
          for (int64_t c = 0; c < look.cols; c++) {
            Sum *to = partial(l, plan.rows[rows[c / group]].partial + p.chunk, head * group + c % group);
            to->m = look.m[c];
            to->z = look.z[c];
            memcpy(to->acc, look.acc.data() + c * wide, wide * sizeof(float));
          }
        }
      });
    std::vector<float> m(ATTEND_COLS), z(ATTEND_COLS), acc(ATTEND_COLS * wide);
    share(int64_t(plan.rest.size()), [&](int64_t i) {
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
            const Sum *x = partial(l, rows[c / group].partial + k, head * group + c % group);
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
        }
      }
    });
  }

  // The wanted rows move to the front.
  void keep_wanted(int64_t queries) {
    share(1, [&](int64_t) {
      for (int64_t i = 0; i < step.n_wanted; i++) {
        memmove(b.x.data() + i * hidden, b.x.data() + step.wanted[i] * hidden, hidden * sizeof(S));
        memmove(b.attended.data() + i * queries, b.attended.data() + step.wanted[i] * queries, queries * sizeof(S));
      }
    });
    rows = step.n_wanted;
  }

  void all(S *logits) {
    const S *table = of(d.embed);
    share(rows, [&](int64_t r) {
      S *xr = b.x.data() + r * hidden;
      memcpy(xr, table + step.ids[r] * hidden, hidden * sizeof(S));
      times(xr, hidden, d.embed_scale);
    });
    const Tensor none;
    for (size_t i = 0; i < d.layers.size(); i++) {
      const Layer &l = d.layers[i];
      normed(i > 0, i > 0 ? d.layers[i - 1].after_mlp : none, l.before_attention);
      product(l.qkv, b.h.data(), b.qkv.data(), l.qkv.n);
      turn(l);
      attend(l);
      if (i + 1 == d.layers.size() && step.n_wanted < rows) keep_wanted(l.heads * l.dim);
      if (rows == 0) return;
      product(l.o, b.attended.data(), b.y.data(), hidden);
      normed(true, l.after_attention, l.before_mlp);
      gated(l.gate_up, b.h.data());
      product(l.down, b.act.data(), b.y.data(), hidden);
    }
    normed(true, d.layers.back().after_mlp, d.norm);
    product(d.head, b.h.data(), logits, d.head.n);
  }
};

template <class S>
void run(const Decoder &d, const Step &step, const Typed<S, float> &kn, S *logits) {
  const int want = at::get_num_threads();
  Rows<S> rows(d, step, want);
  std::unique_ptr<Team> own;
#pragma omp parallel num_threads(want)
  {
#pragma omp single
    own = std::make_unique<Team>(omp_get_num_threads());  // with a barrier behind it
    Run<S>(d, step, kn, *own, omp_get_num_threads(), rows).all(logits);
  }
}

// Gives the newest layer the plan of those whose attention is alike.
void number(Decoder &d) {
  Layer &l = d.layers.back();
  auto alike = [&](size_t i) {
    const Layer &o = d.layers[i];
    return o.heads == l.heads && o.kv_heads == l.kv_heads && o.window == l.window && o.dim == l.dim && o.kpool.size(1) == l.kpool.size(1);
  };
  l.plan = size_t(std::find_if(d.kinds.begin(), d.kinds.end(), alike) - d.kinds.begin());
  if (l.plan == d.kinds.size()) d.kinds.push_back(d.layers.size() - 1);
}

}  // namespace
}  // namespace agt

extern "C" {

int agt_in_panels(agt_tensor packed, agt_tensor w, int *yes, char **err) {
  return agt::guarded(err, [&] { *yes = agt::in_panels(agt::tensor_of(packed), agt::tensor_of(w)); });
}

int agt_decoder_new(void **out, const agt_decoder_model *m, const agt_decoder_layer *layers, int n, char **err) {
  return agt::guarded(err, [&] {
    using agt::tensor_of;
    auto d = std::make_unique<agt::Decoder>();
    d->embed = tensor_of(m->embed);
    d->norm = tensor_of(m->norm);
    d->head = agt::weight_of(tensor_of(m->head), {});
    d->embed_scale = m->embed_scale;
    d->residual_scale = m->residual_scale;
    d->eps = m->eps;
    d->norm_offset = m->norm_offset;
    for (int64_t i = 0; i < m->n_ropes; i++) d->ropes.push_back({tensor_of(m->cos[i]), tensor_of(m->sin[i]), m->pairs[i] != 0});
    for (int i = 0; i < n; i++) {
      const agt_decoder_layer &l = layers[i];
      d->layers.push_back({tensor_of(l.before_attention), tensor_of(l.after_attention), tensor_of(l.before_mlp), tensor_of(l.after_mlp),
                           tensor_of(l.q_norm), tensor_of(l.k_norm), l.sinks ? tensor_of(l.sinks).to(at::kFloat).contiguous() : at::Tensor(), tensor_of(l.kpool), tensor_of(l.vpool),
                           agt::weight_of(tensor_of(l.qkv), tensor_of(l.qkv_bias)), agt::weight_of(tensor_of(l.o), tensor_of(l.o_bias)),
                           agt::weight_of(tensor_of(l.gate_up), tensor_of(l.gate_up_bias)), agt::weight_of(tensor_of(l.down),
                               tensor_of(l.down_bias)),
                           l.heads, l.kv_heads, l.dim, l.window, l.rope, l.qk_norm, l.scale, 0});
      agt::number(*d);
    }
    *out = d.release();
  });
}

void agt_decoder_free(void *d) { delete static_cast<agt::Decoder *>(d); }

int agt_decoder_step(void *decoder, const agt_decoder_rows *r, agt_tensor *logits, char **err) {
  return agt::guarded(err, [&] {
    const auto &d = *static_cast<agt::Decoder *>(decoder);
    agt::Step step{r->ids, r->positions, r->segs, r->blocks, r->wanted, r->rows, r->n, r->n_wanted};
    at::Tensor out = at::empty({step.n_wanted, d.head.n}, d.embed.options());
    const bool f32 = d.embed.scalar_type() == at::kFloat;
    for (auto &l : d.layers) TORCH_CHECK(agt::ATTEND_KEYS % l.kpool.size(1) == 0 && l.heads / l.kv_heads <= agt::ATTEND_COLS, "decoder: no plan of attention for such blocks or heads");
    TORCH_CHECK((!d.head.quant && !d.layers[0].qkv.quant) || (!f32 && agt::kernels().quant_panel), "the kernels in use read no weights of a GGUF");
    TORCH_CHECK(f32 ? agt::kernels().f.panel != nullptr : agt::kernels().b.panel != nullptr, "the kernels in use read no panels");
    if (f32) agt::run<float>(d, step, agt::kernels().f, agt::out_ptr<float>(out));
    else agt::run<agt::bf16>(d, step, agt::kernels().b, agt::out_ptr<agt::bf16>(out));
    *logits = reinterpret_cast<agt_tensor>(new at::Tensor(std::move(out)));
  });
}

}  // extern "C"
