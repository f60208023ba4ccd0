// Bodies of kernels.h; each kernels_*.cpp includes this in a namespace of its
// own under its own target. Sums run in 16 explicit lanes: the compiler may
// not reorder float additions by itself.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "kernels.h"
#include "shim.h"

namespace agt {
namespace AGT_ISA {
namespace {

constexpr int LANES = 16;

inline float load(bf16 x) {
  uint32_t u = uint32_t(x.bits) << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
inline float load(float x) { return x; }
inline double load(double x) { return x; }
inline void store(bf16 *p, float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  p->bits = uint16_t((u & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
}
inline void store(float *p, float f) { *p = f; }
inline void store(double *p, double f) { *p = f; }

// exp by the Cephes polynomial: relative error below 2e-7. Below the smallest
// normal float it gives about 1e-38 instead of a denormal.
inline float exp_(float x) {
  x = x < -87.3f ? -87.3f : (x > 88.f ? 88.f : x);
  float n = (x * 1.44269504088896341f + 12582912.f) - 12582912.f;  // round to nearest
  float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  int32_t i = (int32_t(n) + 127) << 23;
  float s;
  memcpy(&s, &i, 4);
  return p * s;
}
inline double exp_(double x) { return exp(x); }

template <class A>
inline A sum(A *lanes) {  // by halves, which the compiler turns into vector additions; lanes is used up
  for (int w = LANES / 2; w > 0; w /= 2)
    for (int j = 0; j < w; j++) lanes[j] += lanes[j + w];
  return lanes[0];
}

template <class S, class A>
void rope(const S *x, const A *c, const A *s, S *y, int64_t tokens, int64_t heads, int64_t dim, int64_t half, bool pairs, A sign) {
  for (int64_t t = 0; t < tokens; t++) {
    const A *ct = c + t * half, *st = s + t * half;
    for (int64_t h = 0; h < heads; h++) {
      const S *xr = x + (t * heads + h) * dim;
      S *yr = y + (t * heads + h) * dim;
      if (pairs) {
        for (int64_t i = 0; i < half; i++) {
          A a = load(xr[2 * i]), z = load(xr[2 * i + 1]), sn = sign * st[i];
          store(yr + 2 * i, a * ct[i] - z * sn);
          store(yr + 2 * i + 1, z * ct[i] + a * sn);
        }
      } else {
        for (int64_t i = 0; i < half; i++) {
          A a = load(xr[i]), z = load(xr[i + half]), sn = sign * st[i];
          store(yr + i, a * ct[i] - z * sn);
          store(yr + i + half, z * ct[i] + a * sn);
        }
      }
      for (int64_t i = 2 * half; i < dim; i++) yr[i] = xr[i];
    }
  }
}

template <class S, class A>
void silu_mul(const S *x, S *y, int64_t rows, int64_t f) {
  for (int64_t r = 0; r < rows; r++) {
    const S *g = x + r * 2 * f, *u = g + f;
    S *o = y + r * f;
    for (int64_t i = 0; i < f; i++) {
      A gv = load(g[i]);
      store(o + i, gv / (A(1) + exp_(-gv)) * load(u[i]));
    }
  }
}

template <class S>
void round_row(const float *x, const float *bias, int64_t n, S *y) {
  if (bias)
    for (int64_t i = 0; i < n; i++) store(y + i, x[i] + bias[i]);
  else
    for (int64_t i = 0; i < n; i++) store(y + i, x[i]);
}

template <class S>
void add_times(const S *x, float factor, int64_t n, S *y) {
  for (int64_t i = 0; i < n; i++) {
    S part;
    store(&part, load(x[i]) * factor);
    store(y + i, load(y[i]) + load(part));
  }
}

// gelu(g) by tanh is g·sigmoid(2·√(2/π)·(g + .044715·g³)).
template <class S>
void gelu_mul(const S *x, S *y, int64_t rows, int64_t f) {
  for (int64_t r = 0; r < rows; r++) {
    const S *g = x + r * 2 * f, *u = g + f;
    S *o = y + r * f;
    for (int64_t i = 0; i < f; i++) {
      const float gv = load(g[i]);
      store(o + i, gv / (1.f + exp_(-1.5957691216057308f * (gv + .044715f * gv * gv * gv))) * load(u[i]));
    }
  }
}

template <class S>
void sigmoid_mul(S *x, const S *gate, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    S s;
    store(&s, 1.f / (1.f + exp_(-load(gate[i]))));
    store(x + i, load(x[i]) * load(s));
  }
}

template <class S>
void conv_row(const S *const *taps, int64_t n, const float *w, const float *bias, int64_t channels, bool activated, S *y) {
  constexpr int64_t PIECE = 256;
  for (int64_t c0 = 0; c0 < channels; c0 += PIECE) {
    const int64_t wide = std::min(PIECE, channels - c0);
    float sums[PIECE];
    for (int64_t c = 0; c < wide; c++) sums[c] = load(taps[n - 1][c0 + c]) * w[(n - 1) * channels + c0 + c];
    for (int64_t j = n - 2; j >= 0; j--)
      for (int64_t c = 0; c < wide; c++) sums[c] += load(taps[j][c0 + c]) * w[j * channels + c0 + c];
    if (bias)
      for (int64_t c = 0; c < wide; c++) sums[c] += bias[c0 + c];
    if (activated)
      for (int64_t c = 0; c < wide; c++) sums[c] = sums[c] / (1.f + exp_(-sums[c]));
    for (int64_t c = 0; c < wide; c++) store(y + c0 + c, sums[c]);
  }
}

template <class S, class A>
void silu_mul_backward(const S *x, const S *dy, S *dx, int64_t rows, int64_t f) {
  for (int64_t r = 0; r < rows; r++) {
    const S *g = x + r * 2 * f, *u = g + f, *d = dy + r * f;
    S *og = dx + r * 2 * f, *ou = og + f;
#pragma GCC ivdep
    for (int64_t i = 0; i < f; i++) {
      A gv = load(g[i]), uv = load(u[i]), dv = load(d[i]);
      A sg = A(1) / (A(1) + exp_(-gv));
      store(og + i, dv * uv * sg * (A(1) + gv * (A(1) - sg)));
      store(ou + i, dv * gv * sg);
    }
  }
}

template <class S, class A>
void rms_norm(const S *x, const S *add, const S *w, S *sm, S *y, int64_t rows, int64_t n, double eps, A offset) {
  for (int64_t r = 0; r < rows; r++) {
    const S *xr = x + r * n;
    if (add) {
      const S *ar = add + r * n;
      S *sr = sm + r * n;
      for (int64_t i = 0; i < n; i++) store(sr + i, load(xr[i]) + load(ar[i]));
      xr = sr;
    }
    A lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
      for (int j = 0; j < LANES; j++) {
        A v = load(xr[i + j]);
        lanes[j] += v * v;
      }
    A total = sum(lanes);
    for (; i < n; i++) total += load(xr[i]) * load(xr[i]);
    A inv = A(1) / sqrt(total / A(n) + A(eps));
    S *yr = y + r * n;
    for (i = 0; i < n; i++) store(yr + i, load(xr[i]) * inv * (offset + load(w[i])));
  }
}

template <class S>
void gated_norm(const S *x, const S *w, const S *gate, S *y, int64_t heads, int64_t dim, double eps) {
  for (int64_t h = 0; h < heads; h++, x += dim, gate += dim, y += dim) {
    float lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= dim; i += LANES)
      for (int j = 0; j < LANES; j++) lanes[j] += load(x[i + j]) * load(x[i + j]);
    float total = sum(lanes);
    for (; i < dim; i++) total += load(x[i]) * load(x[i]);
    const float inverse = 1.f / sqrtf(total / float(dim) + float(eps));
    for (i = 0; i < dim; i++) {
      S normed, weighed;
      store(&normed, load(x[i]) * inverse);
      store(&weighed, load(normed) * load(w[i]));
      const float z = load(gate[i]);
      store(y + i, load(weighed) * (z / (1.f + exp_(-z))));
    }
  }
}

// dx = (g·w − x̂·mean(g·w·x̂))/rms and dw += g·x̂, with x̂ = x/rms.
template <class S, class A>
void rms_norm_backward(const S *x, const S *w, const S *dy, S *dx, A *dw, int64_t rows, int64_t n, double eps, A offset) {
  for (int64_t r = 0; r < rows; r++) {
    const S *xr = x + r * n, *gr = dy + r * n;
    S *dr = dx + r * n;
    A squares[LANES] = {0}, dots[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
      for (int j = 0; j < LANES; j++) {
        A v = load(xr[i + j]);
        squares[j] += v * v;
        dots[j] += v * load(gr[i + j]) * (offset + load(w[i + j]));
      }
    A square = sum(squares), dot = sum(dots);
    for (; i < n; i++) {
      A v = load(xr[i]);
      square += v * v;
      dot += v * load(gr[i]) * (offset + load(w[i]));
    }
    A inv = A(1) / sqrt(square / A(n) + A(eps));
    A mean = dot * inv * inv / A(n);  // of g·w·x̂, over the rms once more
    for (i = 0; i < n; i++) {
      A v = load(xr[i]), g = load(gr[i]);
      store(dr + i, inv * (g * (offset + load(w[i])) - v * mean));
      dw[i] += g * v * inv;
    }
  }
}

template <class S, class A>
void softmax_row(const S *z, int64_t v, int64_t y, A s, A *lp, A *entropy, A *lse) {
  // A scale of 1 changes no bit: x·1 is x.
  A top[LANES], total[LANES] = {0}, mean[LANES] = {0};
  for (A &t : top) t = load(z[0]);
  int64_t i = 0;
  for (; i + LANES <= v; i += LANES)
    for (int j = 0; j < LANES; j++) {
      A x = load(z[i + j]);
      top[j] = x > top[j] ? x : top[j];
    }
  A mx = top[0];
  for (A t : top) mx = t > mx ? t : mx;
  for (; i < v; i++) mx = load(z[i]) > mx ? load(z[i]) : mx;
  mx *= s;
  // Lanes are emptied into a double now and then: a float would lose the tail
  // of a large vocabulary.
  double sum_ = 0, dot = 0;
  for (i = 0; i + LANES <= v;) {
    for (int64_t end = std::min(i + 256 * LANES, v - LANES + 1); i < end; i += LANES)
      for (int j = 0; j < LANES; j++) {
        A x = load(z[i + j]) * s - mx, e = exp_(x);
        total[j] += e;
        mean[j] += e * x;
      }
    sum_ += sum(total);
    dot += sum(mean);
    for (int j = 0; j < LANES; j++) total[j] = mean[j] = 0;
  }
  for (; i < v; i++) {
    A x = load(z[i]) * s - mx, e = exp_(x);
    sum_ += e;
    dot += e * x;
  }
  double l = log(sum_);
  *lse = A(mx + l);
  *lp = A(load(z[y]) * s - mx - l);
  *entropy = A(l - dot / sum_);  // lse − Σ p·z
}

template <class S, class A>
void softmax_row_backward(S *z, int64_t v, int64_t y, A s, A g, A ge, A lse, A entropy) {
  g *= s;
  ge *= s;
  const A zy = load(z[y]) * s, c = ge * entropy + g;
  if (ge == 0) {
    for (int64_t i = 0; i < v; i++) store(z + i, -g * exp_(load(z[i]) * s - lse));
  } else {
    for (int64_t i = 0; i < v; i++) {
      A x = load(z[i]) * s - lse;
      store(z + i, -exp_(x) * (c + ge * x));
    }
  }
  A x = zy - lse;
  store(z + y, g - exp_(x) * (c + ge * x));
}

// D is the head dimension where it is known when compiling: a row then stays in
// registers. 0 is any.
template <int D, class S, class A>
void paged_decode_dim(const S *q, const S *kpool, const S *vpool, const PagedArgs &a, A *scratch, S *out) {
  const int64_t group = a.group, dim = D ? D : a.dim, ctx = a.ctx;
  A *qf = scratch, *sc = qf + group * dim, *row = sc + group * ctx, *acc = row + dim;
  for (int64_t i = 0; i < group * dim; i++) qf[i] = load(q[i]) * A(a.scale);
  auto at = [&](const S *pool, int64_t t) {
    return pool + ((int64_t(a.blocks[t / a.block_size]) * a.block_size + t % a.block_size) * a.kv_heads + a.head) * dim;
  };
  for (int64_t t = a.first; t < ctx; t++) {
    const S *k = at(kpool, t);
    for (int64_t d = 0; d < dim; d++) row[d] = load(k[d]);
    for (int64_t g = 0; g < group; g++) {
      const A *qg = qf + g * dim;
      A lanes[LANES] = {0};
      int64_t d = 0;
      for (; d + LANES <= dim; d += LANES)
        for (int j = 0; j < LANES; j++) lanes[j] += qg[d + j] * row[d + j];
      A s = sum(lanes);
      for (; d < dim; d++) s += qg[d] * row[d];
      sc[g * ctx + t] = s;
    }
  }
  for (int64_t g = 0; g < group; g++) {
    A *s = sc + g * ctx, mx = s[a.first], z = 0;
    for (int64_t t = a.first; t < ctx; t++) mx = s[t] > mx ? s[t] : mx;
    if (a.sinks) mx = a.sinks[g] > mx ? a.sinks[g] : mx;
    for (int64_t t = a.first; t < ctx; t++) s[t] = exp_(s[t] - mx);
    for (int64_t t = a.first; t < ctx; t++) z += s[t];
    if (a.sinks) z += exp_(A(a.sinks[g]) - mx);
    z = A(1) / z;
    for (int64_t t = a.first; t < ctx; t++) s[t] *= z;
  }
  for (int64_t i = 0; i < group * dim; i++) acc[i] = 0;
  for (int64_t t = a.first; t < ctx; t++) {
    const S *v = at(vpool, t);
    for (int64_t d = 0; d < dim; d++) row[d] = load(v[d]);
    for (int64_t g = 0; g < group; g++) {
      A p = sc[g * ctx + t], *ag = acc + g * dim;
      for (int64_t d = 0; d < dim; d++) ag[d] += p * row[d];
    }
  }
  for (int64_t i = 0; i < group * dim; i++) store(out + i, acc[i]);
}

template <class S, class A>
void paged_decode(const S *q, const S *kpool, const S *vpool, const PagedArgs &a, A *scratch, S *out) {
  switch (a.dim) {
    case 64: return paged_decode_dim<64, S, A>(q, kpool, vpool, a, scratch, out);
    case 128: return paged_decode_dim<128, S, A>(q, kpool, vpool, a, scratch, out);
    default: return paged_decode_dim<0, S, A>(q, kpool, vpool, a, scratch, out);
  }
}

// ---- attention of several new tokens --------------------------------------------
// A query's scores stand in a column: the softmax then runs down the rows and
// nothing is summed across a vector. C[m][64] += Σ_k A[m·am + k·ak] · B[k][64].
constexpr int COLS = agt::PREFILL_COLS;
#ifdef AGT_AVX512
constexpr int WIDTH = 16, MR = 8, NV = 2;
#else
constexpr int WIDTH = 8, MR = 4, NV = 2;
#endif
typedef float vec __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));

inline void columns_gemm(int64_t rows, int64_t inner, const float *a, int64_t am, int64_t ak, const float *b, float *c, bool add,
                         int64_t cols = COLS) {
  for (int64_t m = 0; m < rows; m += MR) {
    for (int64_t j = 0; j < cols; j += NV * WIDTH) {
      vec acc[MR][NV];
      for (int i = 0; i < MR; i++)
        for (int v = 0; v < NV; v++)
          acc[i][v] = add ? *reinterpret_cast<const vec *>(c + (m + i) * COLS + j + v * WIDTH) : vec{};
      const float *am_ = a + m * am;
      for (int64_t k = 0; k < inner; k++) {
        vec bv[NV];
        for (int v = 0; v < NV; v++) bv[v] = *reinterpret_cast<const vec *>(b + k * COLS + j + v * WIDTH);
        for (int i = 0; i < MR; i++)
          for (int v = 0; v < NV; v++) acc[i][v] += am_[i * am + k * ak] * bv[v];
      }
      for (int i = 0; i < MR; i++)
        for (int v = 0; v < NV; v++) *reinterpret_cast<vec *>(c + (m + i) * COLS + j + v * WIDTH) = acc[i][v];
    }
  }
}

// Softmax attention over blocks of keys with a running maximum (Milakov &
// Gimelshein 2018), in float32.
template <class S>
void paged_prefill(const S *q, const S *kpool, const S *vpool, const PrefillArgs &a, float *scratch, S *out) {
  constexpr int64_t KEYS = 64;
  const int64_t dim = a.dim, heads = a.kv_heads * a.group;
  float *qt = scratch, *kv = qt + dim * COLS, *sc = kv + KEYS * dim, *o = sc + KEYS * COLS, *mx = o + dim * COLS,
        *z = mx + COLS, *shrink = z + COLS;
  int64_t pos[COLS];
  auto where = [&](int64_t j) {  // of column j, in q and out
    int64_t c = a.first_col + j;
    return (c / a.group * heads + a.head * a.group + c % a.group) * dim;
  };
  for (int64_t j = 0; j < COLS; j++) {
    int64_t used = std::min(j, a.cols - 1);
    pos[j] = a.ctx - a.len + (a.first_col + used) / a.group;
    const S *x = q + where(used);
    for (int64_t d = 0; d < dim; d++) qt[d * COLS + j] = load(x[d]) * float(a.scale);
    mx[j] = -1e30f;  // finite: the difference of two infinities is no number
    z[j] = 0;
  }
  for (int64_t i = 0; i < dim * COLS; i++) o[i] = 0;
  const int64_t low = pos[0], high = pos[COLS - 1];
  const int64_t first = a.window > 0 && low >= a.window ? (low - a.window + 1) / KEYS * KEYS : 0;
  auto gather = [&](const S *pool, int64_t from, int64_t n) {
    for (int64_t t = 0; t < KEYS; t++) {
      float *row = kv + t * dim;
      if (t >= n) {
        for (int64_t d = 0; d < dim; d++) row[d] = 0;
        continue;
      }
      const S *x = pool + ((int64_t(a.blocks[(from + t) / a.block_size]) * a.block_size + (from + t) % a.block_size) * a.kv_heads + a.head) * dim;
      for (int64_t d = 0; d < dim; d++) row[d] = load(x[d]);
    }
  };
  for (int64_t from = first; from <= high; from += KEYS) {
    const int64_t n = std::min(KEYS, high + 1 - from);
    gather(kpool, from, n);
    columns_gemm(KEYS, dim, kv, dim, 1, qt, sc, false);
    if (from + KEYS - 1 > low || (a.window > 0 && from <= high - a.window)) {
      for (int64_t t = 0; t < KEYS; t++)
        for (int64_t j = 0; j < COLS; j++)
          if (from + t > pos[j] || (a.window > 0 && from + t <= pos[j] - a.window)) sc[t * COLS + j] = -INFINITY;
    }
    for (int64_t j = 0; j < COLS; j++) shrink[j] = mx[j];
    for (int64_t t = 0; t < KEYS; t++)
      for (int64_t j = 0; j < COLS; j++) mx[j] = sc[t * COLS + j] > mx[j] ? sc[t * COLS + j] : mx[j];
    for (int64_t j = 0; j < COLS; j++) {
      shrink[j] = exp_(shrink[j] - mx[j]);
      z[j] *= shrink[j];
    }
    for (int64_t t = 0; t < KEYS; t++)
      for (int64_t j = 0; j < COLS; j++) {
        float p = exp_(sc[t * COLS + j] - mx[j]);
        sc[t * COLS + j] = p;
        z[j] += p;
      }
    for (int64_t d = 0; d < dim; d++)
      for (int64_t j = 0; j < COLS; j++) o[d * COLS + j] *= shrink[j];
    gather(vpool, from, n);
    columns_gemm(dim, KEYS, kv, 1, dim, sc, o, true);
  }
  for (int64_t j = 0; j < a.cols; j++) {
    S *y = out + where(j);
    if (a.sinks) z[j] += expf(a.sinks[(a.first_col + j) % a.group] - mx[j]);
    float inv = 1 / z[j];
    for (int64_t d = 0; d < dim; d++) store(y + d, o[d * COLS + j] * inv);
  }
}

#include "tree_kernels.h"
#include "delta_kernels.h"

// One row of logits: the id that is drawn under temperature, then top-k, top-p
// and min-p, in that order (as transformers applies them; of equal logits at
// the edge of top-k the lower ids stay, transformers keeps all), and its log-prob
// under the model itself: temperature 1, nothing cut; or of logits/temperature, where
// that is asked for. scratch holds vocab floats.
void sample(const float *z, int64_t v, const agt_sampling &o, float *w, int32_t *id, float *lp) {
  float lanes[LANES];
  for (float &l : lanes) l = z[0];
  int64_t i = 0;
  for (; i + LANES <= v; i += LANES)
    for (int j = 0; j < LANES; j++) lanes[j] = z[i + j] > lanes[j] ? z[i + j] : lanes[j];
  float mx = lanes[0];
  for (float l : lanes) mx = l > mx ? l : mx;
  for (; i < v; i++) mx = z[i] > mx ? z[i] : mx;

  // The weights are summed a block at a time; the draw then looks for its
  // block first. inv = 1 serves both the log-prob and the draw.
  constexpr int64_t BLOCK = 1024;
  std::vector<double> blocks((v + BLOCK - 1) / BLOCK);
  auto weigh = [&](float inv) {
    double total = 0;
    for (int64_t b = 0; b < int64_t(blocks.size()); b++) {
      int64_t k = b * BLOCK, end = std::min(v, k + BLOCK);
      float part[LANES] = {0};
      for (; k + LANES <= end; k += LANES)
        for (int j = 0; j < LANES; j++) {
          float e = exp_((z[k + j] - mx) * inv);
          w[k + j] = e;
          part[j] += e;
        }
      double s = 0;
      for (float p : part) s += p;
      for (; k < end; k++) {
        w[k] = exp_((z[k] - mx) * inv);
        s += w[k];
      }
      blocks[b] = s;
      total += s;
    }
    return total;
  };
  double total = weigh(1.f);
  double lse = mx + log(total);
  int64_t best = 0;
  if (!std::isfinite(lse)) {  // the caller sees it in the log-prob; NaN weights cannot be ordered
    *id = 0;
    *lp = NAN;
    return;
  }
  const float inv = float(1 / o.temperature);
  if (o.temperature <= 0 || !std::isfinite(inv)) {
    while (best + 1 < v && z[best] != mx) best++;
    *id = int32_t(best);
    *lp = float(z[best] - lse);
    return;
  }
  if (o.temperature != 1) total = weigh(inv);
  const double log_total = log(total);
  if (o.top_k > 0 || (o.top_p > 0 && o.top_p < 1) || o.min_p > 0) {
    std::vector<int32_t> order;
    order.reserve(size_t(v));
    for (i = 0; i < v; i++) order.push_back(int32_t(i));
    auto more = [&](int32_t a, int32_t b) { return w[a] != w[b] ? w[a] > w[b] : a < b; };
    if (o.top_k > 0 && o.top_k < v) {
      std::nth_element(order.begin(), order.begin() + o.top_k, order.end(), more);
      order.resize(size_t(o.top_k));
    }
    double mass = 0;
    for (int32_t x : order) mass += w[x];
    if (o.top_p > 0 && o.top_p < 1) {
      // The smallest set of the likeliest tokens whose mass reaches top_p,
      // found in growing heads: most draws need few tokens of many.
      double run = 0;
      size_t keep = 0, head = 64;
      for (;;) {
        head = std::min(head, order.size());
        std::partial_sort(order.begin(), order.begin() + long(head), order.end(), more);
        for (run = 0, keep = 0; keep < head && run < o.top_p * mass;) run += w[order[keep++]];
        if (run >= o.top_p * mass || head == order.size()) break;
        head *= 8;
      }
      order.resize(std::max<size_t>(keep, 1));
      mass = run;
    }
    if (o.min_p > 0) {  // relative to the likeliest, whose weight is 1
      order.erase(std::remove_if(order.begin(), order.end(), [&](int32_t x) { return w[x] < float(o.min_p); }), order.end());
      mass = 0;
      for (int32_t x : order) mass += w[x];
    }
    std::sort(order.begin(), order.end());  // in id order: the draw does not depend on how the set was found
    double target = o.uniform * mass, run = 0;
    best = order.empty() ? 0 : order.back();
    for (int32_t x : order) {
      run += w[x];
      if (run > target) {
        best = x;
        break;
      }
    }
  } else {
    double target = o.uniform * total, run = 0;
    size_t b = 0;
    while (b + 1 < blocks.size() && run + blocks[b] <= target) run += blocks[b++];
    int64_t end = std::min(v, int64_t(b + 1) * BLOCK);
    best = -1;
    for (i = int64_t(b) * BLOCK; i < end; i++) {
      run += w[i];
      if (run > target) {
        best = i;
        break;
      }
    }
    if (best < 0) {  // rounding at a block's very end: its likeliest token
      best = std::max_element(w + int64_t(b) * BLOCK, w + end) - w;
    }
  }
  *id = int32_t(best);
  *lp = o.tempered ? float(double(z[best] - mx) / o.temperature - log_total) : float(z[best] - lse);
}

#ifdef AGT_AVX512
#include "panels.h"
#include "attend.h"
#endif
#ifdef AGT_AVX2
#include "panels_avx2.h"
#include "attend_avx2.h"
#endif

#if defined(AGT_AVX512) || defined(AGT_AVX2)
void attend_add(float *m, float *z, float *acc, float m1, float z1, const float *acc1, int64_t wide) {
  const float top = std::max(*m, m1), shrink = exp1(*m - top), shrink1 = exp1(m1 - top);
  *z = *z * shrink + z1 * shrink1;
  for (int64_t d = 0; d < wide; d++) acc[d] = acc[d] * shrink + acc1[d] * shrink1;
  *m = top;
}
#endif

template <class S, class A>
constexpr Typed<S, A> typed() {
  Typed<S, A> k{rope<S, A>, silu_mul<S, A>, silu_mul_backward<S, A>, rms_norm<S, A>, rms_norm_backward<S, A>,
                softmax_row<S, A>, softmax_row_backward<S, A>, paged_decode<S, A>, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                nullptr, nullptr, nullptr};
  if constexpr (sizeof(A) == sizeof(float)) {  // float64 is for checks, not for speed
    k.paged_prefill = paged_prefill<S>;
    k.tree_forward = tree_forward<S>;
    k.tree_backward = tree_backward<S>;
    k.tree_sum = tree_sum<S>;
    k.delta_forward = delta_forward<S>;
    k.delta_backward = delta_backward<S>;
    k.delta_scratch = delta_scratch;
    k.round_row = round_row<S>;
    k.add_times = add_times<S>;
    k.gelu_mul = gelu_mul<S>;
    k.sigmoid_mul = sigmoid_mul<S>;
    k.conv_row = conv_row<S>;
    k.gated_norm = gated_norm<S>;
  }
#ifdef AGT_AVX512
  if constexpr (sizeof(A) == sizeof(float)) {
    k.panel = [](const S *x, int64_t ldx, int64_t rows, const S *w, int64_t n, float *y, const S *next) { panel<S>(x, ldx, rows, w, n, y, next); };
    k.attend = attend<S>;
    k.dots = dots<S>;
    k.own_panels = std::is_same_v<S, bf16>;  // oneDNN has panels of bfloat16 only with instructions for it
    k.widens = std::is_same_v<S, bf16>;
  }
#endif
#ifdef AGT_AVX2
  if constexpr (sizeof(A) == sizeof(float)) {
    k.panel = panel<S>;
    k.attend = attend<S>;
    k.dots = dots<S>;
    k.own_panels = true;
    k.widens = std::is_same_v<S, bf16>;
  }
#endif
  return k;
}

}  // namespace

extern const Kernels table;
#if defined(AGT_AVX512) || defined(AGT_AVX2)
constexpr auto add = attend_add;
#else
constexpr decltype(Kernels::attend_add) add = nullptr;
#endif
const Kernels table = {AGT_NAME, Instructions::AGT_INSTRUCTIONS, typed<bf16, float>(), typed<float, float>(), typed<double, double>(), add, sample};

}  // namespace AGT_ISA
}  // namespace agt
