// The parts of a CPU decoder (decoder.cpp), what a step of it is told, and the numbers that the
// threads of a step share.
#pragma once
#include <ATen/ATen.h>
#include <immintrin.h>
#include <sched.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "attend_plan.h"
#include "delta_plan.h"
#include "quant.h"
#include "shim.h"

namespace agt {

constexpr int64_t PANEL = 64;
constexpr int64_t MOST_TAPS = 8, MOST_ACTIVE = 64;  // of a convolution; experts of a token

// A weight [n, k] in panels; see panels.h, and quant.h for one as a GGUF has it.
struct Weight {
  const void *data = nullptr;
  const QuantPanel *quant = nullptr;
  int64_t n = 0, k = 0, stride = 0;  // numbers of a panel
  at::Tensor hold, bias;
};

struct Attention {
  at::Tensor q_norm, k_norm, sinks, kpool, vpool;
  int64_t heads, kv_heads, dim, window, rope, qk_norm;
  bool gated;  // each head of queries is followed by a gate
  double scale;
  size_t plan;  // of Rows.plans
  int64_t query_rows() const { return heads * dim * (gated ? 2 : 1); }
};

// A mixer whose states outlive a step: a convolution alone (LFM2), or one before the gated delta rule.
struct Recurrent {
  int64_t taps = 0, channels = 0;         // of the convolution; 0: the layer has none
  at::Tensor conv, conv_bias, windows;    // float32 [taps, channels] and [channels]; [slots, taps − 1, channels]
  at::Tensor rate, dt_bias, norm, states;  // of the rule; see DeltaArgs
  DeltaHeads heads{};
  bool delta() const { return states.defined(); }
  int64_t values() const { return heads.value_heads * heads.value_dim; }
};

// MoE experts; see agt_decoder_experts. Their weights are plain.
struct Experts {
  int64_t count = 0, active, size;
  at::Tensor router, correction, gate_up, down;  // correction in float32
  agt_router how;
  bool gelu;
};

struct Layer {
  at::Tensor before_attention, after_attention, before_mlp, after_mlp;
  Weight qkv, o, gate_up, down;
  Attention attention;
  Recurrent recurrent;
  Experts experts;
  at::Tensor mlp_gate;  // [1, hidden]: what the dense MLP gives is times its sigmoid
  bool gelu;
  int64_t inner() const { return down.k; }  // 0: no dense MLP
};

struct Rope {
  at::Tensor cos, sin;
  bool pairs;
};

struct Decoder {
  std::vector<Layer> layers;
  std::vector<Rope> ropes;
  std::vector<size_t> kinds;  // a layer of each kind of attention
  at::Tensor embed, norm;
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

// A low-rank pair for some rows of a product: A [rank, in] and B [out, rank].
struct LowRank {
  const void *a, *b;
  int64_t rank, from, count;
};
enum Slot { QKV, O, GATE_UP, DOWN, SLOTS };  // the matrices that may have pairs

// What a step is told. segs: n quadruples of first row, rows, context with them, first of the blocks. chosen, or
// null: where the experts of all rows go, [layers with experts, rows, active]. The layers first..end−1 are
// computed; held [2, rows, hidden]: the rows between two such parts.
struct Step {
  const int32_t *ids, *positions, *segs, *blocks, *wanted;
  int64_t rows, n, n_wanted;
  DeltaRuns runs;
  int32_t *chosen;
  std::vector<std::vector<LowRank>> pairs;  // by layer and slot; empty: there are none
  size_t first, end;
  void *held;
};

// Which rows the convolutions of a step take in, for `before` tokens before each. A place is a row of
// the step, or one of a slot: −1 − (slot·before + token).
struct Reach {
  int64_t before;
  std::vector<int64_t> places;  // [before, rows], the oldest first
  std::vector<int64_t> last;    // [saves, before]: what a slot keeps

  Reach(const DeltaRuns &of, int64_t rows, int64_t before) : before(before), places(before * rows) {
    std::vector<std::vector<int64_t>> tails(of.n);  // of each run its last tokens
    for (int64_t i = 0; i < of.n; i++) {
      const int32_t *r = of.runs + 4 * i;  // start, length, parent, slot
      std::vector<int64_t> line;
      if (r[2] >= 0) line = tails[r[2]];
      else
        for (int64_t j = 0; j < before; j++) line.push_back(-1 - (int64_t(r[3]) * before + j));
      for (int64_t t = 0; t < r[1]; t++) {
        for (int64_t j = 0; j < before; j++) places[j * rows + r[0] + t] = line[t + j];
        line.push_back(r[0] + t);
      }
      tails[i].assign(line.end() - before, line.end());
    }
    for (int64_t i = 0; i < of.n_saves; i++) {
      const auto &tail = tails[of.saves[2 * i]];
      last.insert(last.end(), tail.begin(), tail.end());
    }
  }
};

// How many numbers all partial results of a layer's attention may have: 256 MB.
constexpr int64_t MOST_PARTIALS = 64 << 20;

// The numbers of a step, which all threads work on.
template <class S>
struct Rows {
  std::vector<S> x, y, h, mixed, q, attended, act, both;
  std::vector<AttendPlan> plans;
  std::unique_ptr<float[]> partials;
  std::vector<int16_t> narrow;  // the input of a product with a weight of a GGUF
  std::vector<float> narrow_scales, narrow_sums;

  // Of recurrent layers.
  std::unique_ptr<Reach> reach;
  std::vector<DeltaPlan> deltas;  // of the layers with the rule, in order
  std::vector<S> conv_in, convolved, kept;

  // Of experts: rows in the order of their experts.
  std::vector<float> router;
  std::vector<int32_t> ids, used, first, places;  // [rows, active]; experts with a row; [count + 1]; [rows, active]
  std::vector<S> shares, gathered, inner, outer, beside;

  std::vector<S> low;  // [rows, ranks] of one product: x·Aᵀ
  int64_t ranks = 0;

  Rows(const Decoder &d, const Step &step, int threads) {
    int64_t sums = 0;
    for (size_t k = 0; k < d.kinds.size(); k++) {
      const Attention &a = d.layers[d.kinds[k]].attention;
      const int64_t each = a.heads * (2 + AttendArgs::wide(a.dim));
      plans.emplace_back(step.segs, step.n, step.blocks, a.kpool.size(1), a.kv_heads, a.heads / a.kv_heads, a.window, threads,
                         MOST_PARTIALS / each);
      sums = std::max(sums, plans.back().partials * each);
    }
    partials.reset(new float[sums]);
    const int64_t n = step.rows;
    int64_t hidden = d.embed.size(1), wide = 0, queries = 0, inner = 0, uneven = 0, longest = 0;
    auto inputs = [&](const Weight &w) { longest = std::max(longest, w.quant ? w.k : 0); };
    inputs(d.head);
    for (auto &l : d.layers) {
      for (auto *w : {&l.qkv, &l.o, &l.gate_up, &l.down}) inputs(*w);
      wide = std::max(wide, l.qkv.n);
      queries = std::max(queries, l.o.k);
      inner = std::max(inner, l.inner());
      if (l.inner() % PANEL != 0) uneven = std::max(uneven, l.inner());
    }
    for (auto *v : {&x, &y, &h}) v->resize(n * hidden);
    mixed.resize(n * wide);
    for (auto *v : {&q, &attended}) v->resize(n * queries);
    act.resize(n * inner);
    both.resize(n * 2 * uneven);
    narrow.resize(n * longest);
    narrow_scales.resize(n * longest / 32);
    narrow_sums.resize(n * longest / 16);
    recurrent(d, step);
    experts(d, n, hidden);
    for (auto &of : step.pairs)
      for (auto &p : of) ranks = std::max(ranks, p.rank);
    low.resize(n * ranks);
  }

 private:
  void recurrent(const Decoder &d, const Step &step) {
    int64_t channels = 0, before = 0;
    deltas.reserve(d.layers.size());
    for (auto &l : d.layers) {
      const Recurrent &r = l.recurrent;
      if (r.taps == 0) continue;
      channels = std::max(channels, r.channels);
      before = r.taps - 1;
      if (!r.delta()) continue;
      deltas.emplace_back(step.runs, step.rows, r.states);
      for (auto &t : deltas.back().trees) t.place_states();
    }
    if (channels == 0) return;
    reach = std::make_unique<Reach>(step.runs, step.rows, before);
    for (auto *v : {&conv_in, &convolved}) v->resize(step.rows * channels);
    kept.resize(step.runs.n_saves * before * channels);
  }

  void experts(const Decoder &d, int64_t n, int64_t hidden) {
    int64_t count = 0, active = 0, size = 0;
    for (auto &l : d.layers)
      if (l.experts.count > 0) {
        count = std::max(count, l.experts.count);
        active = std::max(active, l.experts.active);
        size = std::max(size, l.experts.size);
      }
    if (count == 0) return;
    router.resize(n * count);
    first.resize(count + 1);
    for (auto *v : {&ids, &places}) v->resize(n * active);
    shares.resize(n * active);
    for (auto *v : {&gathered, &outer}) v->resize(n * active * hidden);
    inner.resize(n * active * size);
    beside.resize(n * hidden);
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
    // The panel that a thread multiplies after i, probably: the others take those between. Negative: none.
    int64_t after(int64_t i, int threads) const { return i + threads < panels * parts ? (i + threads) / parts : -1; }
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

  // y [m, 64] = the rows r0..r0+m-1 of in by panel p of w. This thread's next one will be `next`; negative: none.
  void panel(const Weight &w, const S *in, int64_t p, int64_t next, int64_t r0, int64_t m, float *y) {
    if (w.quant) {
      const QuantPanel *after = next < 0 ? nullptr : w.quant + next;
      kernels().quant_panel(from_row(w, r0), m, w.k, w.quant[p], static_cast<const char *>(w.data), after, y);
    } else {
      const S *at = static_cast<const S *>(w.data);
      kn.panel(in + r0 * w.k, w.k, m, at + p * w.stride, w.k, y, next < 0 ? nullptr : at + next * w.stride);
    }
  }

  // low = in·Aᵀ of the rows that have pairs.
  void lora_down(const std::vector<LowRank> &pairs, const S *in, int64_t k) {
    if (pairs.empty()) return;
    constexpr int64_t PIECE = 16;
    const int64_t parts = (b.ranks + PIECE - 1) / PIECE;
    share(int64_t(pairs.size()) * parts, [&](int64_t i) {
      const LowRank &p = pairs[i / parts];
      const int64_t c0 = i % parts * PIECE, n = std::min(PIECE, p.rank - c0);
      thread_local std::vector<float> sums(48 * PANEL);
      for (int64_t r0 = 0; n > 0 && r0 < p.count; r0 += 48) {
        const int64_t m = std::min<int64_t>(48, p.count - r0);
        kn.dots(in + (p.from + r0) * k, k, m, static_cast<const S *>(p.a) + c0 * k, n, k, sums.data());
        for (int64_t r = 0; r < m; r++) kn.round_row(&sums[r * PANEL], nullptr, n, &b.low[(p.from + r0 + r) * b.ranks + c0]);
      }
    });
  }

  // Adds low·Bᵀ to the outputs c0..c0+n−1 of the rows r0..r0+m−1, which are in y, `apart` apart.
  void lora_up(const std::vector<LowRank> &pairs, int64_t c0, int64_t n, int64_t r0, int64_t m, S *y, int64_t apart) {
    for (const LowRank &p : pairs) {
      const int64_t from = std::max(r0, p.from), to = std::min(r0 + m, p.from + p.count);
      if (from >= to) continue;
      thread_local std::vector<float> sums(48 * PANEL);
      kn.dots(&b.low[from * b.ranks], b.ranks, to - from, static_cast<const S *>(p.b) + c0 * p.rank, n, p.rank, sums.data());
      for (int64_t r = from; r < to; r++)
        for (int64_t c = 0; c < n; c++) {
          S *at = y + (r - r0) * apart + c;
          put(at, get(*at) + sums[(r - from) * PANEL + c]);
        }
    }
  }

  // out [rows, ld] = in [rows, w.k]·w, and what the pairs add.
  void product(const Weight &w, const S *in, S *out, int64_t ld, const std::vector<LowRank> &pairs = {}) {
    lora_down(pairs, in, w.k);
    narrow(w, in);
    const Pieces pieces((w.n + PANEL - 1) / PANEL, rows, threads);
    const float *bias = w.bias.defined() ? w.bias.const_data_ptr<float>() : nullptr;
    thread_local std::vector<float> sums(48 * PANEL);
    share(pieces.panels * pieces.parts, [&](int64_t i) {
      pieces.each(i, [&](int64_t p, int64_t r0, int64_t m) {
        const int64_t n = std::min(PANEL, w.n - p * PANEL);
        panel(w, in, p, pieces.after(i, threads), r0, m, sums.data());
        for (int64_t r = 0; r < m; r++)
          kn.round_row(sums.data() + r * PANEL, bias ? bias + p * PANEL : nullptr, n, out + (r0 + r) * ld + p * PANEL);
        lora_up(pairs, p * PANEL, n, r0, m, out + r0 * ld + p * PANEL, ld);
      });
    });
  }

  // What the gate of an MLP does with gate and up [rows, 2f] → [rows, f].
  auto activation(bool gelu) const { return gelu ? kn.gelu_mul : kn.silu_mul; }

  // act = activation(gate)·up: a panel of the one and the same of the other, where up begins a panel.
  void gated(const Weight &w, bool gelu, const S *in, const std::vector<LowRank> &pairs) {
    const int64_t f = w.n / 2;
    const auto activate = activation(gelu);
    if (f % PANEL != 0) {
      product(w, in, b.both.data(), w.n, pairs);
      share(rows, [&](int64_t r) { activate(b.both.data() + r * w.n, b.act.data() + r * f, 1, f); });
      return;
    }
    lora_down(pairs, in, w.k);
    narrow(w, in);
    const Pieces pieces(f / PANEL, rows, threads);
    const float *bias = w.bias.defined() ? w.bias.const_data_ptr<float>() : nullptr;
    thread_local std::vector<float> sums(2 * 48 * PANEL);
    share(pieces.panels * pieces.parts, [&](int64_t i) {
      pieces.each(i, [&](int64_t p, int64_t r0, int64_t m) {
        panel(w, in, p, p + pieces.panels, r0, m, sums.data());
        panel(w, in, p + pieces.panels, pieces.after(i, threads), r0, m, sums.data() + 48 * PANEL);
        thread_local std::vector<S> both(48 * 2 * PANEL);
        for (int64_t part = 0; part < 2; part++) {
          for (int64_t r = 0; r < m; r++)
            kn.round_row(&sums[(part * 48 + r) * PANEL], bias ? bias + part * f + p * PANEL : nullptr, PANEL, &both[(2 * r + part) * PANEL]);
          lora_up(pairs, part * f + p * PANEL, PANEL, r0, m, &both[part * PANEL], 2 * PANEL);
        }
        for (int64_t r = 0; r < m; r++) activate(&both[2 * r * PANEL], b.act.data() + (r0 + r) * f + p * PANEL, 1, PANEL);
      });
    });
  }

  const S *of(const at::Tensor &t) const { return static_cast<const S *>(t.const_data_ptr()); }

  void times(S *row, int64_t n, double factor) {
    if (factor == 1) return;
    for (int64_t i = 0; i < n; i++) put(row + i, get(row[i]) * float(factor));
  }

  // x takes in y, what a sub-layer adds, if there is any; h is what the next one takes.
  void normed(bool add, const at::Tensor &after, const at::Tensor &before) {
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
};

}  // namespace agt
