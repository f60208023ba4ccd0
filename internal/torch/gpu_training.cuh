// What training needs besides: gradients of norms and gates, rotations, the head.
#pragma once
#include "gpu_common.cuh"

namespace agt {
namespace gpu {

// As norm_row, of all rows from `row` on, `step` apart. held adds up the weight's gradient: a
// thread has its own columns.
template <class T, class R>
__device__ inline void norm_gradient_rows(const NormGradient &a, i64 row, i64 step, int thread, int threads, float *held, R reduce) {
  const T *w = static_cast<const T *>(a.w);
  for (i64 i = i64(thread) * 8; i < a.n; i += i64(threads) * 8)
    for (int j = 0; j < 8; j++) held[i + j] = 0;
  for (; row < a.rows; row += step) {
    const T *x = static_cast<const T *>(a.x) + row * a.n, *g = static_cast<const T *>(a.g) + row * a.n;
    float squares = 0, dot = 0;
    for (i64 i = i64(thread) * 8; i < a.n; i += i64(threads) * 8) {
      const Eight<T> v = load(x + i), d = load(g + i), f = load(w + i);
      for (int j = 0; j < 8; j++) {
        squares += wide(v.v[j]) * wide(v.v[j]);
        dot += wide(d.v[j]) * (a.offset + wide(f.v[j])) * wide(v.v[j]);
      }
    }
    const float inverse = 1 / sqrtf(reduce(squares) / float(a.n) + a.eps), mean = reduce(dot) * inverse / float(a.n);
    for (i64 i = i64(thread) * 8; i < a.n; i += i64(threads) * 8) {
      Eight<T> v = load(x + i);
      const Eight<T> d = load(g + i), f = load(w + i);
      for (int j = 0; j < 8; j++) {
        const float normed = wide(v.v[j]) * inverse;
        held[i + j] += wide(d.v[j]) * normed;
        v.v[j] = narrow<T>(inverse * (wide(d.v[j]) * (a.offset + wide(f.v[j])) - normed * mean));
      }
      store(static_cast<T *>(a.dx) + row * a.n + i, v);
    }
  }
}
template <class T>
__device__ void norm_rows_gradient(const NormGradient &a) {  // a warp a row
  constexpr int warps = kRowThreads / 32;
  __shared__ float held[warps * kShortRow];
  const int warp = threadIdx.x / 32;
  norm_gradient_rows<T>(a, i64(blockIdx.x) * warps + warp, i64(gridDim.x) * warps, threadIdx.x % 32, 32, held + warp * kShortRow,
                        [](float x) { return warp_reduce(x, Add()); });
  __syncthreads();
  for (i64 i = threadIdx.x; i < a.n; i += kRowThreads) {
    float sum = 0;
    for (int k = 0; k < warps; k++) sum += held[k * kShortRow + i];
    a.sums[blockIdx.x * a.n + i] = sum;
  }
}
template <class T>
__device__ void norm_long_gradient(const NormGradient &a) {  // a block a row
  __shared__ float held[kLongRow], shared[32];
  float *s = shared;
  norm_gradient_rows<T>(a, blockIdx.x, gridDim.x, threadIdx.x, kRowThreads, held, [s](float x) { return block_reduce(x, Add(), s); });
  __syncthreads();
  for (i64 i = threadIdx.x; i < a.n; i += kRowThreads) a.sums[blockIdx.x * a.n + i] = held[i];
}
template <class T>
__device__ void gate_gradient(const GateGradient &a) {
  const i64 at = (i64(blockIdx.x) * blockDim.x + threadIdx.x) * 8, row = at / a.n;
  if (row >= a.rows) return;
  const i64 place = row * 2 * a.n + at % a.n;
  Eight<T> g = load(static_cast<const T *>(a.x) + place), u = load(static_cast<const T *>(a.x) + place + a.n);
  const Eight<T> d = load(static_cast<const T *>(a.g) + at);
  for (int j = 0; j < 8; j++) {
    const float v = wide(g.v[j]), s = 1 / (1 + expf(-v)), dy = wide(d.v[j]);
    g.v[j] = narrow<T>(dy * wide(u.v[j]) * s * (1 + v * (1 - s)));
    u.v[j] = narrow<T>(dy * v * s);
  }
  store(static_cast<T *>(a.dx) + place, g);
  store(static_cast<T *>(a.dx) + place + a.n, u);
}
template <class T>
__device__ void turn_eight(const Turn &a, i64 at) {  // whole heads of halves
  const i64 head = at * 8 / a.half, row = head / a.heads, i = at * 8 % a.half;
  const T *x = static_cast<const T *>(a.x) + head * a.dim + i;
  T *y = static_cast<T *>(a.y) + head * a.dim + i;
  Eight<T> p = load(x), q = load(x + a.half);
  const Eight<float> c = load(a.cos + row * a.half + i), s = load(a.sin + row * a.half + i);
  for (int j = 0; j < 8; j++) {
    const float u = wide(p.v[j]), v = wide(q.v[j]), sine = a.sign * s.v[j];
    p.v[j] = narrow<T>(u * c.v[j] - v * sine);
    q.v[j] = narrow<T>(v * c.v[j] + u * sine);
  }
  store(y, p);
  store(y + a.half, q);
}
template <class T>
__device__ void turn_pair(const Turn &a, i64 at) {
  const i64 head = at / (a.dim / 2), row = head / a.heads;
  const int i = int(at % (a.dim / 2));
  const T *x = static_cast<const T *>(a.x) + head * a.dim;
  T *y = static_cast<T *>(a.y) + head * a.dim;
  if (i >= a.half) {  // not turned
    y[2 * i] = x[2 * i];
    y[2 * i + 1] = x[2 * i + 1];
    return;
  }
  const int p = a.neighbours ? 2 * i : i, q = a.neighbours ? 2 * i + 1 : i + a.half;
  const float c = a.cos[row * a.half + i], s = a.sign * a.sin[row * a.half + i], u = wide(x[p]), v = wide(x[q]);
  y[p] = narrow<T>(u * c - v * s);
  y[q] = narrow<T>(v * c + u * s);
}
template <class T>
__device__ void turn(const Turn &a) {  // eight pairs are a thread's
  const i64 at = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at * 8 >= a.pairs) return;
  if (!a.neighbours && a.half % 8 == 0 && a.dim == 2 * a.half) return turn_eight<T>(a, at);
  for (i64 i = at * 8; i < at * 8 + 8 && i < a.pairs; i++) turn_pair<T>(a, i);
}

// ---- the head ---------------------------------------------------------------------------------
template <class T>
__device__ void head(const Head &a) {
  __shared__ float tops[32];
  __shared__ double sums[32];
  const T *z = static_cast<const T *>(a.logits) + i64(blockIdx.x) * a.vocabulary;
  const float s = a.scale ? a.scale[blockIdx.x] : 1.f;
  float top = -INFINITY;
  each_entry(z, a.vocabulary, [&](i64, float logit) { top = fmaxf(top, s * logit); });
  top = block_reduce(top, Max(), tops);
  double total = 0, mean = 0;
  each_entry(z, a.vocabulary, [&](i64, float logit) {
    const float x = s * logit - top, e = expf(x);
    total += e;
    if (e > 0) mean += e * x;  // 0 · −∞ of an entry that cannot be drawn
  });
  total = block_reduce(total, Add(), sums);
  mean = block_reduce(mean, Add(), sums);
  if (threadIdx.x > 0) return;
  const double spread = log(total);
  a.lse[blockIdx.x] = float(top + spread);
  a.entropy[blockIdx.x] = float(spread - mean / total);
  a.logprobs[blockIdx.x] = float(double(s * wide(z[a.targets[blockIdx.x]]) - top) - spread);
}
template <class T>
__device__ void head_gradient(const HeadGradient &a) {
  T *z = static_cast<T *>(a.logits) + i64(blockIdx.x) * a.vocabulary;
  const i64 y = a.targets[blockIdx.x];
  const float s = a.scale ? a.scale[blockIdx.x] : 1.f, lse = a.lse[blockIdx.x], entropy = a.entropy[blockIdx.x], g = a.g[blockIdx.x];
  const float ge = a.ge ? a.ge[blockIdx.x] : 0.f;
  auto gradient = [&](i64 i, float logit) {
    const float lp = s * logit - lse, p = expf(lp);
    float d = g * ((i == y ? 1.f : 0.f) - p);
    if (ge != 0 && p > 0) d -= ge * p * (lp + entropy);
    return narrow<T>(s * d);
  };
  if (a.vocabulary % 8 == 0) {
    for (i64 i = i64(threadIdx.x) * 8; i < a.vocabulary; i += i64(blockDim.x) * 8) {
      Eight<T> v = load(z + i);
      for (int j = 0; j < 8; j++) v.v[j] = gradient(i + j, wide(v.v[j]));
      store(z + i, v);
    }
    return;
  }
  for (i64 i = threadIdx.x; i < a.vocabulary; i += blockDim.x) z[i] = gradient(i, wide(z[i]));
}

}  // namespace gpu
}  // namespace agt
