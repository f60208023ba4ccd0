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
#include <cstring>
#include <memory>
#include <vector>

#include "guard.h"
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

// A weight [n, k] in panels; see panels.inc.
struct Weight {
  const void *data = nullptr;
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
  out.n = w.size(0);
  out.k = w.size(1);
  int64_t panels = (out.n + PANEL - 1) / PANEL, size = w.scalar_type() == at::kFloat ? 4 : 2;
  out.data = at::native::data_ptr_from_mkldnn(w);
  out.stride = at::native::nbytes_from_mkldnn(w) / size / panels;
  out.hold = w;
  if (bias.defined()) out.bias = bias.to(at::kFloat).contiguous();
  return out;
}

struct Layer {
  Tensor before_attention, after_attention, before_mlp, after_mlp, q_norm, k_norm, sinks, kpool, vpool;
  Weight qkv, o, gate_up, down;
  int64_t heads, kv_heads, dim, window, rope, qk_norm;
  double scale;
};

struct Rope {
  Tensor cos, sin;
  bool pairs;
};

struct Decoder {
  std::vector<Layer> layers;
  std::vector<Rope> ropes;
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

// The numbers of a step, which all threads work on.
template <class S>
struct Rows {
  std::vector<S> x, y, h, qkv, q, attended, act, both;
  Rows(const Decoder &d, int64_t n) {
    int64_t hidden = d.embed.size(1), wide = 0, queries = 0, inner = 0;
    for (auto &l : d.layers) {
      wide = std::max(wide, l.qkv.n);
      queries = std::max(queries, l.heads * l.dim);
      inner = std::max(inner, l.down.k);
    }
    for (auto *v : {&x, &y, &h}) v->resize(n * hidden);
    qkv.resize(n * wide);
    for (auto *v : {&q, &attended}) v->resize(n * queries);
    act.resize(n * inner);
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

  // out [rows, ld] = in [rows, w.k]·w.
  void product(const Weight &w, const S *in, S *out, int64_t ld) {
    const Pieces pieces((w.n + PANEL - 1) / PANEL, rows, threads);
    const S *data = static_cast<const S *>(w.data);
    const float *bias = w.bias.defined() ? w.bias.const_data_ptr<float>() : nullptr;
    thread_local std::vector<float> sums(48 * PANEL);
    share(pieces.panels * pieces.parts, [&](int64_t i) {
      pieces.each(i, [&](int64_t p, int64_t r0, int64_t m) {
        const int64_t n = std::min(PANEL, w.n - p * PANEL);
        kn.panel(in + r0 * w.k, w.k, m, data + p * w.stride, w.k, sums.data());
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
    const Pieces pieces(f / PANEL, rows, threads);
    const S *data = static_cast<const S *>(w.data);
    const float *bias = w.bias.defined() ? w.bias.const_data_ptr<float>() : nullptr;
    thread_local std::vector<float> sums(2 * 48 * PANEL);
    share(pieces.panels * pieces.parts, [&](int64_t i) {
      pieces.each(i, [&](int64_t p, int64_t r0, int64_t m) {
        for (int64_t part = 0; part < 2; part++)
          kn.panel(in + r0 * w.k, w.k, m, data + (p + part * pieces.panels) * w.stride, w.k, sums.data() + part * 48 * PANEL);
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

  void attend(const Layer &l) {
    const int64_t hq = l.heads, hkv = l.kv_heads, dim = l.dim, group = hq / hkv, block = l.kpool.size(1);
    const double scale = l.scale != 0 ? l.scale : 1 / std::sqrt(double(dim));
    const S *kp = of(l.kpool), *vp = of(l.vpool);
    const float *sinks = l.sinks.defined() ? l.sinks.const_data_ptr<float>() : nullptr;
    struct Piece {
      int64_t seg, head, col;
    };
    thread_local std::vector<Piece> pieces;  // each thread makes the same list: the longest first
    pieces.clear();
    for (int64_t i = 0; i < step.n; i++)
      if (step.segs[4 * i + 1] > 1)
        for (int64_t all = step.segs[4 * i + 1] * group, c = (all - 1) / PREFILL_COLS * PREFILL_COLS; c >= 0; c -= PREFILL_COLS)
          for (int64_t head = 0; head < hkv; head++) pieces.push_back({i, head, c});
    for (int64_t i = 0; i < step.n; i++)
      if (step.segs[4 * i + 1] == 1)
        for (int64_t head = 0; head < hkv; head++) pieces.push_back({i, head, 0});
    thread_local std::vector<float> scratch;
    share(int64_t(pieces.size()), [&](int64_t i) {
      const Piece &w = pieces[i];
      const int32_t *s = step.segs + 4 * w.seg;
      const int64_t ctx = s[2], at = int64_t(s[0]) * hq * dim;
      const float *sunk = sinks ? sinks + w.head * group : nullptr;
      if (s[1] > 1) {
        PrefillArgs a{step.blocks + s[3], block, hkv, w.head, group, dim, ctx, s[1], l.window, w.col,
                      std::min<int64_t>(PREFILL_COLS, s[1] * group - w.col), scale, sunk};
        scratch.resize(PrefillArgs::scratch(dim));
        kn.paged_prefill(b.q.data() + at, kp, vp, a, scratch.data(), b.attended.data() + at);
        return;
      }
      PagedArgs a{step.blocks + s[3], block, hkv, w.head, group, dim, l.window > 0 && ctx > l.window ? ctx - l.window : 0, ctx,
          scale, sunk};
      scratch.resize(2 * group * dim + group * ctx + dim);
      kn.paged_decode(b.q.data() + at + w.head * group * dim, kp, vp, a, scratch.data(), b.attended.data() + at + w.head * group * dim);
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
  Rows<S> rows(d, step.rows);
  const int want = at::get_num_threads();
  std::unique_ptr<Team> own;
#pragma omp parallel num_threads(want)
  {
#pragma omp single
    own = std::make_unique<Team>(omp_get_num_threads());  // with a barrier behind it
    Run<S>(d, step, kn, *own, omp_get_num_threads(), rows).all(logits);
  }
}

Tensor tensor_of(agt_tensor t) { return t ? *reinterpret_cast<Tensor *>(t) : Tensor(); }

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
                           l.heads, l.kv_heads, l.dim, l.window, l.rope, l.qk_norm, l.scale});
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
    TORCH_CHECK(f32 ? agt::kernels().f.panel != nullptr : agt::kernels().b.panel != nullptr, "the kernels in use read no panels");
    if (f32) agt::run<float>(d, step, agt::kernels().f, agt::out_ptr<float>(out));
    else agt::run<agt::bf16>(d, step, agt::kernels().b, agt::out_ptr<agt::bf16>(out));
    *logits = reinterpret_cast<agt_tensor>(new at::Tensor(std::move(out)));
  });
}

}  // extern "C"
