// A layer besides attention: rows of the embedding, gates, norms, products of few rows, heads.
#pragma once
#include "gpu_common.cuh"

namespace agt {
namespace gpu {

// Eight values are a thread's.
template <class T>
__device__ void embed(const Embed &a) {
  const i64 at = (i64(blockIdx.x) * blockDim.x + threadIdx.x) * 8, row = at / a.n;
  if (row >= a.rows) return;
  Eight<T> v = load(static_cast<const T *>(a.table) + a.ids[row] * a.n + at % a.n);
  if (a.scale != 1)
    for (int j = 0; j < 8; j++) v.v[j] = narrow<T>(wide(v.v[j]) * a.scale);
  store(static_cast<T *>(a.y) + at, v);
}
template <class T>
__device__ void gate(const Gate &a) {
  const i64 at = (i64(blockIdx.x) * blockDim.x + threadIdx.x) * 8, row = at / a.n, column = at % a.n;
  if (row >= a.rows) return;
  Eight<T> g = load(static_cast<const T *>(a.g) + row * a.g_stride + column);
  const Eight<T> u = load(static_cast<const T *>(a.u) + row * a.u_stride + column);
  for (int j = 0; j < 8; j++) {
    const float v = wide(g.v[j]);
    g.v[j] = narrow<T>((a.gelu ? gelu(v) : silu(v)) * wide(u.v[j]));
  }
  store(static_cast<T *>(a.y) + at, g);
}

// ---- norms -------------------------------------------------------------------------------
// `threads` threads, of which this is number `thread`, norm one row; reduce adds up over
// them.
template <class T, class R>
__device__ inline void norm_row(const Norm &a, i64 row, int thread, int threads, R reduce) {
  constexpr int most = 2;  // pieces of eight that a thread holds
  const i64 from = row * a.stride;
  const T *x = static_cast<const T *>(a.x) + from, *w = static_cast<const T *>(a.w);
  T *sum = static_cast<T *>(a.sum) + from, *y = static_cast<T *>(a.y) + from;
  float squares = 0;
  auto take = [&](i64 i) {
    Eight<T> v = load(x + i);
    if (a.add) {
      const Eight<T> u = load(static_cast<const T *>(a.add) + from + i);
      for (int j = 0; j < 8; j++) v.v[j] = narrow<T>(wide(v.v[j]) + wide(u.v[j]));
      store(sum + i, v);
    }
    for (int j = 0; j < 8; j++) squares += wide(v.v[j]) * wide(v.v[j]);
    return v;
  };
  auto at = [&](int k) { return (i64(k) * threads + thread) * 8; };
  Eight<T> held[most], f[most];
#pragma unroll
  for (int k = 0; k < most; k++)
    if (at(k) < a.n) {
      held[k] = take(at(k));
      f[k] = load(w + at(k));
    }
  for (i64 i = at(most); i < a.n; i += i64(threads) * 8) take(i);
  const float inverse = 1 / sqrtf(reduce(squares) / float(a.n) + a.eps);
  auto give = [&](i64 i, Eight<T> v, const Eight<T> &f) {
    for (int j = 0; j < 8; j++) v.v[j] = narrow<T>(wide(v.v[j]) * inverse * (a.offset + wide(f.v[j])));
    store(y + i, v);
  };
#pragma unroll
  for (int k = 0; k < most; k++)
    if (at(k) < a.n) give(at(k), held[k], f[k]);
  const T *of = a.add ? sum : x;  // a thread reads what it has written
  for (i64 i = at(most); i < a.n; i += i64(threads) * 8) give(i, load(of + i), load(w + i));
}
template <class T>
__device__ void norm_rows(const Norm &a) {  // a warp a row
  const i64 row = i64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= a.rows) return;
  norm_row<T>(a, row, threadIdx.x % 32, 32, [](float x) { return warp_reduce(x, Add()); });
}
template <class T>
__device__ void norm_long(const Norm &a) {  // a block a row
  __shared__ float shared[32];
  float *s = shared;
  norm_row<T>(a, blockIdx.x, threadIdx.x, blockDim.x, [s](float x) { return block_reduce(x, Add(), s); });
}

// ---- products of few rows ------------------------------------------------------------------
// Each warp takes two rows of W at a time, of which its lanes read eight values each; with gate they
// are the two rows of one output. M is how many rows x has; with N a block norms them all first. The
// weights are read some pieces in advance, the first ones before the last kernel has ended.
template <int M, bool N>
__device__ void product(const Product &a) {
  constexpr int warps = kRowThreads / 32, early = M > 2 ? 2 : 4;  // pieces of eight that are read in advance
  __shared__ Packed held[N ? few_bytes(M) / sizeof(Packed) : 1];
  __shared__ float sums[warps], parts[warps][2 * M];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int eights = int(a.k / 8);
  const i64 units = a.gate ? a.n / 2 : (a.n + 1) / 2;
  const int teams = warps / a.split, team = warp / a.split, part = warp % a.split, step = a.split * 32, from = part * 32 + lane;
  const int chunks = (eights + early * step - 1) / (early * step);
  const Eight<bf16> *x = static_cast<const Eight<bf16> *>(a.x);
  auto first = [&](i64 unit) { return a.gate ? unit : 2 * unit; };
  auto second = [&](i64 unit) { return a.gate ? unit + units : 2 * unit + 1 < a.n ? 2 * unit + 1 : 2 * unit; };
  auto weights = [&](i64 row) { return static_cast<const Packed *>(a.w) + row * eights; };
  Packed p[early], q[early];
  // Reads the k-th pieces of a chunk of early pieces, of the rows of a unit.
  auto fetch = [&](i64 unit, int chunk, int k) {
    const int i = from + (chunk * early + k) * step;
    if (unit >= units || i >= eights) return;
    p[k] = weights(first(unit))[i];
    q[k] = weights(second(unit))[i];
  };
#pragma unroll
  for (int k = 0; k < early; k++) fetch(i64(blockIdx.x) * teams + team, 0, k);
  Eight<bf16> factors[N ? 2 : 1];
  if (N) {
#pragma unroll
    for (int k = 0; k < 2; k++)
      if (int(threadIdx.x) + k * kRowThreads < eights) factors[k] = static_cast<const Eight<bf16> *>(a.norm)[threadIdx.x + k * kRowThreads];
  }
  await_last();
  if (N) {
    const Eight<bf16> *add = static_cast<const Eight<bf16> *>(a.add), *w = static_cast<const Eight<bf16> *>(a.norm);
    for (int m = 0; m < M; m++) {
      float squares = 0;
      for (int i = threadIdx.x; i < eights; i += kRowThreads) {
        Eight<bf16> v = x[m * eights + i];
        if (add) {
          const Eight<bf16> u = add[m * eights + i];
          for (int j = 0; j < 8; j++) v.v[j] = narrow<bf16>(wide(v.v[j]) + wide(u.v[j]));
          if (blockIdx.x == 0) static_cast<Eight<bf16> *>(a.sum)[m * eights + i] = v;
        }
        held[m * eights + i] = packed(v);
        for (int j = 0; j < 8; j++) squares += wide(v.v[j]) * wide(v.v[j]);
      }
      const float inverse = 1 / sqrtf(block_reduce(squares, Add(), sums) / float(a.k) + a.eps);
      for (int i = threadIdx.x, k = 0; i < eights; i += kRowThreads, k++) {  // a thread reads what it has written
        const Packed v = held[m * eights + i];
        Eight<bf16> f = k == 0 ? factors[0] : k == 1 ? factors[1] : w[i];
        for (int j = 0; j < 8; j++) f.v[j] = narrow<bf16>(wide(v, j) * inverse * (a.offset + wide(f.v[j])));
        held[m * eights + i] = packed(f);
      }
    }
    __syncthreads();
  }
  for (i64 base = i64(blockIdx.x) * teams; base < units; base += i64(gridDim.x) * teams) {  // as often in all threads
    const i64 unit = base + team, row = first(unit), other = second(unit);
    const bool live = unit < units;
    float acc[2][M];
    for (int m = 0; m < M; m++) acc[0][m] = acc[1][m] = 0;
    auto add_up = [&](const Packed &p, const Packed &q, int i) {
      for (int m = 0; m < M; m++) {
        const Packed v = N ? held[m * eights + i] : static_cast<const Packed *>(a.x)[m * eights + i];
        for (int j = 0; j < 8; j++) {
          acc[0][m] += wide(p, j) * wide(v, j);
          acc[1][m] += wide(q, j) * wide(v, j);
        }
      }
    };
    for (int c = 0; c < chunks; c++) {
      const i64 next = c + 1 < chunks ? unit : unit + i64(gridDim.x) * teams;
      const int then = c + 1 < chunks ? c + 1 : 0;
#pragma unroll
      for (int k = 0; k < early; k++) {
        const int i = from + (c * early + k) * step;
        if (live && i < eights) add_up(p[k], q[k], i);
        fetch(next, then, k);
      }
    }
    for (int m = 0; m < M; m++)
      for (int r = 0; r < 2; r++) acc[r][m] = warp_reduce(acc[r][m], Add());
    if (a.split > 1) {
      if (lane == 0)
        for (int m = 0; m < M; m++)
          for (int r = 0; r < 2; r++) parts[warp][2 * m + r] = acc[r][m];
      __syncthreads();
      for (int p = 1; p < a.split && part == 0; p++)
        for (int m = 0; m < M; m++)
          for (int r = 0; r < 2; r++) acc[r][m] += parts[warp + p][2 * m + r];
      __syncthreads();
    }
    if (!live || part > 0 || lane > 0) continue;
    bf16 *y = static_cast<bf16 *>(a.y);
    const bf16 *bias = static_cast<const bf16 *>(a.bias);
    for (int m = 0; m < M; m++) {
      bf16 v[2] = {narrow<bf16>(acc[0][m]), narrow<bf16>(acc[1][m])};
      if (bias) {
        v[0] = narrow<bf16>(wide(v[0]) + wide(bias[row]));
        v[1] = narrow<bf16>(wide(v[1]) + wide(bias[other]));
      }
      if (a.gate) {
        y[m * units + unit] = narrow<bf16>(silu(wide(v[0])) * wide(v[1]));
      } else {
        y[m * a.n + row] = v[0];
        y[m * a.n + other] = v[1];  // of an odd n the last one twice
      }
    }
  }
}

// ---- heads -------------------------------------------------------------------------------
// A lane has P times eight values of a head.
template <class T, int P>
__device__ void heads(const Heads &a) {
  __shared__ float whole[kDecodeThreads / 32][P * kHeadPart];
  const int lane = threadIdx.x % 32, all = a.heads + (a.shared ? 0 : 2 * a.kv_heads);
  const i64 at = i64(blockIdx.x) * (kDecodeThreads / 32) + threadIdx.x / 32;
  if (at >= a.rows * all) return await_last();
  const i64 row = at / all;
  const int head = int(at % all), of_queries = a.gated ? 2 * a.heads : a.heads;
  const int stored = of_queries + (a.shared ? 0 : a.keys_are_values ? a.kv_heads : 2 * a.kv_heads);
  const bool query = head < a.heads, value = head >= a.heads + a.kv_heads;
  const i64 place = query ? (a.gated ? 2 * head : head) : of_queries + head - a.heads - (value && a.keys_are_values ? a.kv_heads : 0);
  auto from = [&](int p) { return p * kHeadPart + lane * 8; };
  auto has = [&](int p) { return from(p) < a.dim; };
  // All that no kernel of the step writes is asked for before the last one has ended.
  Eight<T> b[P]{}, f[P]{}, x[P]{};
  const T *w = static_cast<const T *>(value ? nullptr : query ? a.q_norm : a.k_norm);
#pragma unroll
  for (int p = 0; p < P; p++) {
    if (has(p) && a.bias) b[p] = load(static_cast<const T *>(a.bias) + place * a.dim + from(p));
    if (has(p) && w) f[p] = load(w + from(p));
  }
  const float *c = value ? nullptr : query ? a.q_cos : a.k_cos, *s = query ? a.q_sin : a.k_sin;
  const i64 slot = query ? 0 : a.slots[row];
  float cosine[8 * P], sine[8 * P];
  if (c) {
    const i64 turn = (a.positions ? a.positions[row] : row) * a.half;
#pragma unroll
    for (int j = 0; j < 8 * P; j++) {
      const int i = from(j / 8) + j % 8;
      const i64 pair = turn + (a.neighbours ? i / 2 : i < a.half ? i : i - a.half);
      cosine[j] = i < 2 * a.half ? c[pair] : 1;
      sine[j] = i < 2 * a.half ? s[pair] : 0;
    }
  }
  await_last();
#pragma unroll
  for (int p = 0; p < P; p++) {
    if (has(p)) x[p] = load(static_cast<const T *>(a.x) + (row * stored + place) * a.dim + from(p));
    if (has(p) && a.bias)
      for (int j = 0; j < 8; j++) x[p].v[j] = narrow<T>(wide(x[p].v[j]) + wide(b[p].v[j]));
  }
  if (w || (value && a.value_norm)) {
    float squares = 0;
#pragma unroll
    for (int p = 0; p < P; p++)
      for (int j = 0; j < 8; j++) squares += wide(x[p].v[j]) * wide(x[p].v[j]);
    const float inverse = 1 / sqrtf(warp_reduce(squares, Add()) / float(a.dim) + a.eps);
#pragma unroll
    for (int p = 0; p < P; p++)
      for (int j = 0; j < 8; j++) x[p].v[j] = narrow<T>(wide(x[p].v[j]) * inverse * (a.offset + (w ? wide(f[p].v[j]) : 1)));
  }
  if (c) {
    float *h = whole[threadIdx.x / 32];
#pragma unroll
    for (int p = 0; p < P; p++)
      if (has(p))
        for (int j = 0; j < 8; j++) h[from(p) + j] = wide(x[p].v[j]);
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 8 * P; j++) {
      const int i = from(j / 8) + j % 8;
      if (i >= 2 * a.half) break;
      const bool first = a.neighbours ? i % 2 == 0 : i < a.half;
      const int apart = a.neighbours ? 1 : a.half;
      const float other = first ? -h[i + apart] : h[i - apart];
      x[j / 8].v[j % 8] = narrow<T>(h[i] * cosine[j] + other * sine[j]);
    }
  }
  if (!query && slot < 0) return;
  const int kv = value ? head - a.heads - a.kv_heads : head - a.heads;
  T *to = static_cast<T *>(query ? a.q : value ? a.values : a.keys) + (query ? row * a.heads + head : slot * a.kv_heads + kv) * a.dim;
#pragma unroll
  for (int p = 0; p < P; p++)
    if (has(p)) store(to + from(p), x[p]);
}

}  // namespace gpu
}  // namespace agt
