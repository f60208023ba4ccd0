// Our kernels for a device. NVRTC compiles them when a device is first used; the tests
// compile the same text for the CPU and run it block by block (testdevice/blocks.h), so
// nothing is included but gpu_args.h.
//
// A result depends on its own row alone: neither the number of rows nor what the others
// hold changes a bit.
#include "gpu_args.h"

#ifndef INFINITY  // NVRTC has no math.h
#define INFINITY __uint_as_float(0x7f800000u)
#define NAN __uint_as_float(0x7fc00000u)
#endif

namespace agt {
namespace gpu {

typedef unsigned int u32;
typedef long long i64;
constexpr u32 kAll = 0xffffffffu;
constexpr float kLog2e = 1.4426950408889634f;

struct bf16 {
  unsigned short bits;
};
__device__ inline float wide(float x) { return x; }
__device__ inline float wide(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }
template <class T>
__device__ inline T narrow(float x);
template <>
__device__ inline float narrow<float>(float x) { return x; }
template <>
__device__ inline bf16 narrow<bf16>(float x) {  // to the nearest, ties to even
  u32 u = __float_as_uint(x);
  bool nan = (u & 0x7fffffffu) > 0x7f800000u;
  return bf16{(unsigned short)(nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

// Eight values of a row, read at once: 16 bytes of bfloat16.
template <class T>
struct alignas(16) Eight {
  T v[8];
};
template <class T>
__device__ inline Eight<T> load(const T *p) { return *reinterpret_cast<const Eight<T> *>(p); }
template <class T>
__device__ inline void store(T *p, const Eight<T> &x) { *reinterpret_cast<Eight<T> *>(p) = x; }

struct Add {
  template <class A>
  __device__ A operator()(A a, A b) const { return a + b; }
};
struct Max {
  template <class A>
  __device__ A operator()(A a, A b) const { return a > b ? a : b; }
};
struct Min {
  template <class A>
  __device__ A operator()(A a, A b) const { return a < b ? a : b; }
};

// All lanes get the same bits: at each level both partners add the same two numbers.
template <class A, class F>
__device__ inline A warp_reduce(A x, F f, int lanes = 32) {
  for (int o = lanes / 2; o > 0; o /= 2) x = f(x, __shfl_xor_sync(kAll, x, o));
  return x;
}
// Shared holds one A a warp.
template <class A, class F>
__device__ inline A block_reduce(A x, F f, A *shared) {
  x = warp_reduce(x, f);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
  for (u32 w = 1; w < blockDim.x / 32; w++) x = f(x, shared[w]);
  __syncthreads();
  return x;
}

// ---- decoding ----------------------------------------------------------------------------
// FlashDecoding (Dao et al. 2023): the context is cut into splits of a fixed length, which
// are computed side by side and put together. `lanes` threads read a key, eight dimensions
// each; G is how many query heads share it.
template <class T, int G>
__device__ void decode(const Decode &a) {
  constexpr int warps = kDecodeThreads / 32;
  __shared__ float top[warps][G], sum[warps][G], rows[warps][G][kHeadSize];
  const int group = a.heads / a.kv_heads, pieces = (group + G - 1) / G;
  const int seq = blockIdx.z, kv = blockIdx.y / pieces, first = kv * group + blockIdx.y % pieces * G;
  const int heads = min(G, (kv + 1) * group - first);
  const int context = a.context[seq];
  const int begin = a.window > 0 && context > a.window ? context - int(a.window) : 0;
  const int split = int(decode_split(context - begin)), from = begin + int(blockIdx.x) * split, to = min(context, from + split);
  if (from >= context) return;
  const int lane = threadIdx.x % a.lanes, worker = threadIdx.x / a.lanes, workers = kDecodeThreads / a.lanes;
  const bool has = lane * 8 < a.dim;
  const T *keys = static_cast<const T *>(a.keys), *values = static_cast<const T *>(a.values);
  const i64 row = a.row[seq], width = *a.width;

  float q[G][8], acc[G][8], m[G], l[G];
  for (int g = 0; g < G; g++) {
    m[g] = -INFINITY;
    l[g] = 0;
    Eight<T> x{};
    if (has && g < heads) x = load(static_cast<const T *>(a.q) + (row * a.heads + first + g) * a.dim + lane * 8);
    for (int j = 0; j < 8; j++) {
      q[g][j] = wide(x.v[j]) * a.scale;
      acc[g][j] = 0;
    }
  }
  Eight<T> k{}, v{}, next_k{}, next_v{};
  auto fetch = [&](int pos) {
    if (pos >= to || !has) return;
    const i64 block = a.table[seq * width + pos / a.block];
    const i64 at = ((block * a.block + pos % a.block) * a.kv_heads + kv) * a.dim + lane * 8;
    next_k = load(keys + at);
    next_v = load(values + at);
  };
  fetch(from + worker);
  for (int base = from; base < to; base += workers) {  // as often in all threads: they exchange products
    const int pos = base + worker;
    const bool live = pos < to;
    k = next_k;
    v = next_v;
    fetch(pos + workers);  // while this one is computed
    for (int g = 0; g < G; g++) {
      float s = 0;
      for (int j = 0; j < 8; j++) s += q[g][j] * wide(k.v[j]);
      s = warp_reduce(s, Add(), a.lanes);
      if (!live) continue;
      const float higher = fmaxf(m[g], s), keep = exp2f(m[g] - higher), p = exp2f(s - higher);
      m[g] = higher;
      l[g] = l[g] * keep + p;
      for (int j = 0; j < 8; j++) acc[g][j] = acc[g][j] * keep + p * wide(v.v[j]);
    }
  }
  // What the workers of a warp have seen, and then the warps.
  const int warp = threadIdx.x / 32;
  for (int g = 0; g < G; g++) {
    for (int o = a.lanes; o < 32; o *= 2) {
      const float other = __shfl_xor_sync(kAll, m[g], o), higher = fmaxf(m[g], other);
      const float mine = m[g] == higher ? 1 : exp2f(m[g] - higher), theirs = other == higher ? 1 : exp2f(other - higher);
      l[g] = l[g] * mine + __shfl_xor_sync(kAll, l[g], o) * theirs;
      for (int j = 0; j < 8; j++) acc[g][j] = acc[g][j] * mine + __shfl_xor_sync(kAll, acc[g][j], o) * theirs;
      m[g] = higher;
    }
    if (threadIdx.x % 32 >= a.lanes || !has) continue;
    if (lane == 0) {
      top[warp][g] = m[g];
      sum[warp][g] = l[g];
    }
    for (int j = 0; j < 8; j++) rows[warp][g][lane * 8 + j] = acc[g][j];
  }
  __syncthreads();
  const bool alone = to == context && from == begin;  // no other split
  for (int at = threadIdx.x; at < heads * a.dim; at += kDecodeThreads) {
    const int g = at / a.dim, i = at % a.dim;
    float highest = -INFINITY, total = 0, x = 0;
    for (int w = 0; w < warps; w++) highest = fmaxf(highest, top[w][g]);
    for (int w = 0; w < warps; w++) {
      const float share = exp2f(top[w][g] - highest);
      total += sum[w][g] * share;
      x += rows[w][g][i] * share;
    }
    const i64 head = first + g;
    if (alone) {
      if (a.sinks) total += exp2f(a.sinks[head] * kLog2e - highest);
      static_cast<T *>(a.out)[(row * a.heads + head) * a.dim + i] = narrow<T>(x / total);
      continue;
    }
    float *part = a.parts + ((seq * i64(a.heads) + head) * a.splits + blockIdx.x) * (a.dim + 2);
    if (i == 0) {
      part[0] = highest;
      part[1] = total;
    }
    part[2 + i] = x;
  }
}

// Grid: heads, sequences.
template <class T>
__device__ void combine(const Decode &a) {
  const int head = blockIdx.x, seq = blockIdx.y, context = a.context[seq];
  const int seen = a.window > 0 && context > a.window ? int(a.window) : context;
  const int split = int(decode_split(seen)), splits = (seen + split - 1) / split;
  if (splits < 2) return;
  const float *parts = a.parts + (seq * i64(a.heads) + head) * a.splits * (a.dim + 2);
  float highest = -INFINITY, total = 0;
  for (int s = 0; s < splits; s++) highest = fmaxf(highest, parts[s * i64(a.dim + 2)]);
  for (int s = 0; s < splits; s++) total += parts[s * i64(a.dim + 2) + 1] * exp2f(parts[s * i64(a.dim + 2)] - highest);
  if (a.sinks) total += exp2f(a.sinks[head] * kLog2e - highest);
  T *out = static_cast<T *>(a.out) + (a.row[seq] * i64(a.heads) + head) * a.dim;
  for (int i = threadIdx.x; i < a.dim; i += blockDim.x) {
    float x = 0;
    for (int s = 0; s < splits; s++) {
      const float *part = parts + s * i64(a.dim + 2);
      x += part[2 + i] * exp2f(part[0] - highest);
    }
    out[i] = narrow<T>(x / total);
  }
}

// ---- rows --------------------------------------------------------------------------------
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
  const i64 at = (i64(blockIdx.x) * blockDim.x + threadIdx.x) * 8, row = at / a.n;
  if (row >= a.rows) return;
  const T *x = static_cast<const T *>(a.x) + row * 2 * a.n + at % a.n;
  Eight<T> g = load(x), u = load(x + a.n);
  for (int j = 0; j < 8; j++) {
    const float v = wide(g.v[j]);
    const float act = a.gelu ? .5f * v * (1 + tanhf(.7978845608028654f * (v + .044715f * v * v * v))) : v / (1 + expf(-v));
    g.v[j] = narrow<T>(act * wide(u.v[j]));
  }
  store(static_cast<T *>(a.y) + at, g);
}

// ---- norms -------------------------------------------------------------------------------
// `threads` threads, of which this is number `thread`, norm one row; reduce adds up over
// them.
template <class T, class R>
__device__ inline void norm_row(const Norm &a, i64 row, int thread, int threads, R reduce) {
  const T *x = static_cast<const T *>(a.x) + row * a.n, *w = static_cast<const T *>(a.w);
  T *sum = static_cast<T *>(a.sum) + row * a.n, *y = static_cast<T *>(a.y) + row * a.n;
  float squares = 0;
  for (i64 i = i64(thread) * 8; i < a.n; i += i64(threads) * 8) {
    Eight<T> v = load(x + i);
    if (a.add) {
      Eight<T> u = load(static_cast<const T *>(a.add) + row * a.n + i);
      for (int j = 0; j < 8; j++) v.v[j] = narrow<T>(wide(v.v[j]) + wide(u.v[j]));
      store(sum + i, v);
    }
    for (int j = 0; j < 8; j++) squares += wide(v.v[j]) * wide(v.v[j]);
  }
  const float inverse = 1 / sqrtf(reduce(squares) / float(a.n) + a.eps);
  const T *of = a.add ? sum : x;  // a thread reads what it has written
  for (i64 i = i64(thread) * 8; i < a.n; i += i64(threads) * 8) {
    Eight<T> v = load(of + i), f = load(w + i);
    for (int j = 0; j < 8; j++) v.v[j] = narrow<T>(wide(v.v[j]) * inverse * (a.offset + wide(f.v[j])));
    store(y + i, v);
  }
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
__device__ void turn(const Turn &a) {
  const i64 at = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= a.pairs) return;
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

// ---- products of few rows ------------------------------------------------------------------
// Each warp takes two rows of W at a time, of which its lanes read eight values each; with gate they
// are the two rows of one output. M is how many rows x has; with N a block norms them all first.
template <class T, int M, bool N>
__device__ void product(const Product &a) {
  constexpr int warps = kRowThreads / 32;
  __shared__ Eight<T> held[N ? kFewBytes / sizeof(Eight<T>) : 1];
  __shared__ float sums[warps], parts[warps][2 * M];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const i64 eights = a.k / 8;
  const Eight<T> *x = static_cast<const Eight<T> *>(a.x);
  if (N) {
    const Eight<T> *add = static_cast<const Eight<T> *>(a.add), *w = static_cast<const Eight<T> *>(a.norm);
    for (int m = 0; m < M; m++) {
      float squares = 0;
      for (i64 i = threadIdx.x; i < eights; i += kRowThreads) {
        Eight<T> v = x[m * eights + i];
        if (add) {
          const Eight<T> u = add[m * eights + i];
          for (int j = 0; j < 8; j++) v.v[j] = narrow<T>(wide(v.v[j]) + wide(u.v[j]));
          if (blockIdx.x == 0) static_cast<Eight<T> *>(a.sum)[m * eights + i] = v;
        }
        held[m * eights + i] = v;
        for (int j = 0; j < 8; j++) squares += wide(v.v[j]) * wide(v.v[j]);
      }
      const float inverse = 1 / sqrtf(block_reduce(squares, Add(), sums) / float(a.k) + a.eps);
      for (i64 i = threadIdx.x; i < eights; i += kRowThreads) {  // a thread reads what it has written
        Eight<T> v = held[m * eights + i];
        const Eight<T> f = w[i];
        for (int j = 0; j < 8; j++) v.v[j] = narrow<T>(wide(v.v[j]) * inverse * (a.offset + wide(f.v[j])));
        held[m * eights + i] = v;
      }
    }
    __syncthreads();
  }
  const i64 units = a.gate ? a.n / 2 : (a.n + 1) / 2;
  const int teams = warps / a.split, team = warp / a.split, part = warp % a.split;
  for (i64 base = i64(blockIdx.x) * teams; base < units; base += i64(gridDim.x) * teams) {  // as often in all threads
    const i64 unit = base + team, row = a.gate ? unit : 2 * unit, other = a.gate ? unit + units : 2 * unit + 1 < a.n ? 2 * unit + 1 : row;
    const bool live = unit < units;
    float acc[2][M];
    for (int m = 0; m < M; m++) acc[0][m] = acc[1][m] = 0;
    if (live) {
      const Eight<T> *w0 = static_cast<const Eight<T> *>(a.w) + row * eights, *w1 = static_cast<const Eight<T> *>(a.w) + other * eights;
#pragma unroll 4
      for (i64 i = i64(part) * 32 + lane; i < eights; i += a.split * 32) {
        const Eight<T> p = w0[i], q = w1[i];
        for (int m = 0; m < M; m++) {
          const Eight<T> v = N ? held[m * eights + i] : x[m * eights + i];
          for (int j = 0; j < 8; j++) {
            acc[0][m] += wide(p.v[j]) * wide(v.v[j]);
            acc[1][m] += wide(q.v[j]) * wide(v.v[j]);
          }
        }
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
    T *y = static_cast<T *>(a.y);
    const T *bias = static_cast<const T *>(a.bias);
    for (int m = 0; m < M; m++) {
      T v[2] = {narrow<T>(acc[0][m]), narrow<T>(acc[1][m])};
      if (bias) {
        v[0] = narrow<T>(wide(v[0]) + wide(bias[row]));
        v[1] = narrow<T>(wide(v[1]) + wide(bias[other]));
      }
      if (a.gate) {
        const float g = wide(v[0]);
        y[m * units + unit] = narrow<T>(g / (1 + expf(-g)) * wide(v[1]));
      } else {
        y[m * a.n + row] = v[0];
        y[m * a.n + other] = v[1];  // of an odd n the last one twice
      }
    }
  }
}

// ---- heads -------------------------------------------------------------------------------
template <class T>
__device__ void heads(const Heads &a) {
  __shared__ float whole[kDecodeThreads / 32][kHeadSize];
  const int lane = threadIdx.x % 32, all = a.heads + 2 * a.kv_heads;
  const i64 at = i64(blockIdx.x) * (kDecodeThreads / 32) + threadIdx.x / 32;
  if (at >= a.rows * all) return;
  const i64 row = at / all;
  const int head = int(at % all), from = lane * 8;
  const bool has = from < a.dim, query = head < a.heads, value = head >= a.heads + a.kv_heads;
  Eight<T> x{};
  if (has) x = load(static_cast<const T *>(a.x) + at * a.dim + from);
  if (has && a.bias) {
    const Eight<T> b = load(static_cast<const T *>(a.bias) + head * a.dim + from);
    for (int j = 0; j < 8; j++) x.v[j] = narrow<T>(wide(x.v[j]) + wide(b.v[j]));
  }
  // All that is read is asked for before anything is waited for.
  const float *c = value ? nullptr : query ? a.q_cos : a.k_cos, *s = query ? a.q_sin : a.k_sin;
  const i64 slot = query ? 0 : a.slots[row];
  float cosine[8], sine[8];
  if (c) {
    const i64 turn = (a.positions ? a.positions[row] : row) * a.half;
    for (int j = 0; j < 8; j++) {
      const int i = from + j;
      const i64 pair = turn + (a.neighbours ? i / 2 : i < a.half ? i : i - a.half);
      cosine[j] = i < 2 * a.half ? c[pair] : 1;
      sine[j] = i < 2 * a.half ? s[pair] : 0;
    }
  }
  const T *w = static_cast<const T *>(value ? nullptr : query ? a.q_norm : a.k_norm);
  if (w) {
    float squares = 0;
    for (int j = 0; j < 8; j++) squares += wide(x.v[j]) * wide(x.v[j]);
    const float inverse = 1 / sqrtf(warp_reduce(squares, Add()) / float(a.dim) + a.eps);
    Eight<T> f{};
    if (has) f = load(w + from);
    for (int j = 0; j < 8; j++) x.v[j] = narrow<T>(wide(x.v[j]) * inverse * (a.offset + wide(f.v[j])));
  }
  if (c) {
    float *h = whole[threadIdx.x / 32];
    if (has)
      for (int j = 0; j < 8; j++) h[from + j] = wide(x.v[j]);
    __syncwarp();
    for (int j = 0; j < 8; j++) {
      const int i = from + j;
      if (i >= 2 * a.half) break;
      const bool first = a.neighbours ? i % 2 == 0 : i < a.half;
      const int apart = a.neighbours ? 1 : a.half;
      const float other = first ? -h[i + apart] : h[i - apart];
      x.v[j] = narrow<T>(h[i] * cosine[j] + other * sine[j]);
    }
  }
  if (!has) return;
  if (query) {
    store(static_cast<T *>(a.q) + (row * a.heads + head) * a.dim + from, x);
    return;
  }
  if (slot < 0) return;
  const int kv = value ? head - a.heads - a.kv_heads : head - a.heads;
  store(static_cast<T *>(value ? a.values : a.keys) + (slot * a.kv_heads + kv) * a.dim + from, x);
}

// ---- drawing tokens -------------------------------------------------------------------------
// The rule of the CPU's sample (kernels.inc): the token at which the sum of the weights, in
// the order of ids, exceeds uniform × their total. Kept are those whose bits are above
// `bits`, and of those that equal it the first `equal`: weights are not negative, so their
// bits are in the order of their values.
struct Kept {
  u32 bits;
  i64 equal;
};

// f(i, logit) for the entries that are this thread's, of a block's.
template <class T, class F>
__device__ void each_entry(const T *z, i64 n, F f) {
  if (n % 8 == 0) {
    for (i64 i = i64(threadIdx.x) * 8; i < n; i += kSampleThreads * 8) {
      const Eight<T> v = load(z + i);
      for (int j = 0; j < 8; j++) f(i + j, wide(v.v[j]));
    }
    return;
  }
  for (i64 i = threadIdx.x; i < n; i += kSampleThreads) f(i, wide(z[i]));
}

// The weights of the entries: 0 beyond the vocabulary.
template <class T>
struct Weights {
  const T *z;
  i64 n;
  float top, inverse;  // the largest logit, 1/temperature
  __device__ float of(float logit) const { return expf((logit - top) * inverse); }
  __device__ float operator()(i64 i) const { return i < n ? of(wide(z[i])) : 0.f; }
  template <class F>
  __device__ void each(F f) const {  // f(weight)
    const Weights w = *this;
    each_entry(z, n, [&](i64, float logit) { f(w.of(logit)); });
  }
};

// The largest number t with enough(sum of `of` over the entries whose bits are at least t),
// four bits at a time; 0 where none is enough.
template <class A, class T, class Of, class Enough>
__device__ u32 threshold(const Weights<T> &w, Of of, Enough enough, A (*shared)[15]) {
  u32 found = 0;
  for (int shift = 28; shift >= 0; shift -= 4) {
    A sums[15];
    for (int c = 0; c < 15; c++) sums[c] = 0;
    w.each([&](float x) {
      const u32 bits = __float_as_uint(x);
      for (int c = 0; c < 15; c++)
        if (bits >= (found | u32(c + 1) << shift)) sums[c] += of(x);
    });
    for (int c = 0; c < 15; c++) {
      sums[c] = warp_reduce(sums[c], Add());
      if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32][c] = sums[c];
    }
    __syncthreads();
    u32 digit = 0;
    for (int c = 0; c < 15; c++) {
      A sum = 0;
      for (int k = 0; k < kSampleThreads / 32; k++) sum += shared[k][c];
      if (enough(found | u32(c + 1) << shift, sum)) digit = c + 1;
    }
    found |= digit << shift;
    __syncthreads();
  }
  return found;
}

// keep finds what top-k, top-p and min-p leave, each of what the one before left.
template <class T>
__device__ inline Kept keep(const Weights<T> &w, const Drawing &o, double (*shared)[15], double *sums) {
  Kept k{0, w.n};
  auto above = [&](u32 bits, double &mass, i64 &equal) {  // the mass above bits, how many equal it
    double m = 0, e = 0;
    w.each([&](float x) {
      const u32 b = __float_as_uint(x);
      if (b > bits) m += x;
      if (b == bits) e += 1;
    });
    mass = block_reduce(m, Add(), sums);
    equal = i64(block_reduce(e, Add(), sums));
  };
  if (o.top_k > 0 && o.top_k < w.n) {
    const double want = o.top_k;
    k.bits = threshold<double>(w, [](float) { return 1.; }, [want](u32, double n) { return n >= want; }, shared);
    double more = 0;
    w.each([&](float x) { more += __float_as_uint(x) > k.bits; });
    k.equal = o.top_k - i64(block_reduce(more, Add(), sums));
  }
  if (o.top_p > 0 && o.top_p < 1) {
    double mass;
    i64 equal;
    above(k.bits, mass, equal);
    const u32 least = k.bits;
    k.equal = k.equal < equal ? k.equal : equal;
    const double want = o.top_p * (mass + double(k.equal) * __uint_as_float(least));
    const u32 bits = threshold<double>(
        w, [](float x) { return double(x); }, [want, least](u32 t, double m) { return t <= least || m >= want; }, shared);
    if (bits > least) {
      k.bits = bits;
      above(bits, mass, k.equal);
    }
    const double each = __uint_as_float(k.bits);
    i64 few = each > 0 ? i64((want - mass) / each) - 1 : 0;  // a little less than are needed
    few = few > 0 ? few : 0;
    while (few < k.equal && mass + double(few) * each < want) few++;
    k.equal = few > 0 ? few : mass > 0 ? 0 : 1;
  }
  const u32 least = __float_as_uint(float(o.min_p));  // the likeliest token's weight is 1
  if (o.min_p > 0 && least > k.bits) k = {least, w.n};
  return k;
}

// Adds up kSamplePiece entries, eight at `from` and each `step` behind: the mass above the edge, and
// how many are on it.
template <class T>
__device__ inline void weigh(const Weights<T> &w, const Kept &kept, i64 from, i64 step, double &mass, int &on) {
  for (int k = 0; k < kSamplePiece / 8; k++) {
    const i64 i = from + k * step;
    const bool whole = w.n % 8 == 0 && i < w.n;
    Eight<T> v{};
    if (whole) v = load(w.z + i);
    for (int j = 0; j < 8; j++) {
      const float x = whole ? w.of(wide(v.v[j])) : w(i + j);
      const u32 bits = __float_as_uint(x);
      if (bits > kept.bits) mass += x;
      if (bits == kept.bits) on++;
    }
  }
}

// A walk over masses in order to the one within which their sum exceeds target.
struct Walk {
  double target, before;  // before: the sum of what is passed
  i64 left;               // of entries on the edge that are kept
  __device__ int to(const double *masses, const int *equals, int count, float edge) {
    const Walk begin = *this;
    int last = 0;
    Walk at_last = begin;
    for (int b = 0; b < count; b++) {
      const i64 on = equals[b] < left ? equals[b] : left;
      const double here = masses[b] + double(on) * edge;
      if (here > 0) {
        last = b;
        at_last = *this;
      }
      if (before + here > target) return b;
      before += here;
      left -= on;
    }
    *this = at_last;  // rounding at the very end: the last that has any
    return last;
  }
};

template <class T>
__device__ void sample(const Sample &a) {
  __shared__ double masses[kSampleBlocks], few[kSampleThreads / 32][15], sums[32];
  __shared__ i64 whole[32];
  __shared__ float tops[32];
  __shared__ int equals[kSampleBlocks];
  const Drawing o = a.rows[blockIdx.x];
  const T *z = static_cast<const T *>(a.logits) + i64(blockIdx.x) * a.vocabulary;
  const i64 n = a.vocabulary;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = kSampleThreads / 32;

  float top = -INFINITY;
  each_entry(z, n, [&](i64, float logit) { top = logit > top ? logit : top; });
  top = block_reduce(top, Max(), tops);
  const bool greedy = o.temperature <= 0 || !(float(1 / o.temperature) < INFINITY);
  const Weights<T> plain{z, n, top, 1.f}, w{z, n, top, greedy ? 1.f : float(1 / o.temperature)};
  double total = 0, tempered = 0;
  each_entry(z, n, [&](i64, float logit) {
    total += plain.of(logit);
    if (w.inverse != 1) tempered += w.of(logit);
  });
  total = block_reduce(total, Add(), sums);
  tempered = w.inverse != 1 ? block_reduce(tempered, Add(), sums) : total;
  const double lse = top + log(total);
  if (!(lse < INFINITY && lse > -INFINITY)) {  // the host sees it in the log-prob
    if (threadIdx.x == 0) {
      a.ids[blockIdx.x] = 0;
      a.logprobs[blockIdx.x] = NAN;
    }
    return;
  }
  i64 best = n;
  if (greedy) {
    each_entry(z, n, [&](i64 i, float logit) {
      if (logit == top && i < best) best = i;
    });
    best = block_reduce(best, Min(), whole);
  } else {
    const bool cut = o.top_k > 0 || (o.top_p > 0 && o.top_p < 1) || o.min_p > 0;
    const Kept kept = cut ? keep(w, o, few, sums) : Kept{0, n};
    const float edge = __uint_as_float(kept.bits);
    // The mass of each run of kSampleBlock entries: above the edge, and how many are on it.
    const int blocks = int((n + kSampleBlock - 1) / kSampleBlock);
    for (int b = warp; b < blocks; b += warps) {
      double mass = 0;
      int on = 0;
      weigh(w, kept, i64(b) * kSampleBlock + lane * 8, 32 * 8, mass, on);
      mass = warp_reduce(mass, Add());
      on = warp_reduce(on, Add());
      if (lane == 0) {
        masses[b] = mass;
        equals[b] = on;
      }
    }
    __syncthreads();
    double mass = 0;
    i64 left = kept.equal;
    for (int b = 0; b < blocks; b++) {
      const i64 on = equals[b] < left ? equals[b] : left;
      mass += masses[b] + double(on) * edge;
      left -= on;
    }
    // The run in which the token is, then the piece of it: all threads walk, it is short.
    Walk walk{o.uniform * mass, 0, kept.equal};
    const i64 run = i64(walk.to(masses, equals, blocks, edge)) * kSampleBlock;
    __syncthreads();
    if (warp == 0) {
      double mass = 0;
      int on = 0;
      weigh(w, kept, run + lane * kSamplePiece, 8, mass, on);
      masses[lane] = mass;
      equals[lane] = on;
    }
    __syncthreads();
    const i64 from = run + walk.to(masses, equals, 32, edge) * kSamplePiece;
    // Within the piece one entry after the other.
    if (threadIdx.x == 0) {
      i64 chosen = -1;
      for (i64 i = from; i < from + kSamplePiece && i < n; i++) {
        const float x = w(i);
        const u32 bits = __float_as_uint(x);
        if (bits < kept.bits || (bits == kept.bits && walk.left-- <= 0) || !(x > 0)) continue;
        chosen = i;
        walk.before += x;
        if (walk.before > walk.target) break;
      }
      whole[0] = chosen < 0 ? 0 : chosen;
    }
    __syncthreads();
    best = whole[0];
  }
  if (threadIdx.x == 0) {
    a.ids[blockIdx.x] = int(best);
    a.logprobs[blockIdx.x] = !greedy && o.tempered ? float(double(wide(z[best]) - top) / o.temperature - log(tempered)) : float(wide(z[best]) - lse);
  }
}

// ---- the head ---------------------------------------------------------------------------------
template <class T>
__device__ void head(const Head &a) {
  __shared__ float tops[32];
  __shared__ double sums[32];
  const T *z = static_cast<const T *>(a.logits) + i64(blockIdx.x) * a.vocabulary;
  const float s = a.scale ? a.scale[blockIdx.x] : 1.f;
  float top = -INFINITY;
  for (i64 i = threadIdx.x; i < a.vocabulary; i += blockDim.x) top = fmaxf(top, s * wide(z[i]));
  top = block_reduce(top, Max(), tops);
  double total = 0, mean = 0;
  for (i64 i = threadIdx.x; i < a.vocabulary; i += blockDim.x) {
    const float x = s * wide(z[i]) - top, e = expf(x);
    total += e;
    if (e > 0) mean += e * x;  // 0 · −∞ of an entry that cannot be drawn
  }
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
  for (i64 i = threadIdx.x; i < a.vocabulary; i += blockDim.x) {
    const float lp = s * wide(z[i]) - lse, p = expf(lp);
    float d = g * ((i == y ? 1.f : 0.f) - p);
    if (ge != 0 && p > 0) d -= ge * p * (lp + entropy);
    z[i] = narrow<T>(s * d);
  }
}

}  // namespace gpu
}  // namespace agt

// One entry a kernel and type: the host looks up "gpu_" + name, with "_f32" or "_bf16".
#define AGT_KERNEL(name, threads, args, call) \
  extern "C" __global__ void __launch_bounds__(threads) gpu_##name(const agt::gpu::args a) { agt::gpu::call(a); }
#define AGT_BOTH(name, threads, args, call)                    \
  AGT_KERNEL(name##_f32, threads, args, call<float>)           \
  AGT_KERNEL(name##_bf16, threads, args, call<agt::gpu::bf16>)
#define AGT_COMMA ,
#define AGT_DECODE(g)                                                              \
  AGT_KERNEL(decode##g##_f32, 128, Decode, decode<float AGT_COMMA g>)              \
  AGT_KERNEL(decode##g##_bf16, 128, Decode, decode<agt::gpu::bf16 AGT_COMMA g>)
AGT_DECODE(1)
AGT_DECODE(2)
AGT_DECODE(4)
AGT_DECODE(8)
AGT_BOTH(combine, 128, Decode, combine)
AGT_BOTH(embed, 128, Embed, embed)
AGT_BOTH(gate, 128, Gate, gate)
#define AGT_PRODUCT(m)                                                                     \
  AGT_KERNEL(product##m##_f32, 256, Product, product<float AGT_COMMA m AGT_COMMA false>)                 \
  AGT_KERNEL(product##m##_bf16, 256, Product, product<agt::gpu::bf16 AGT_COMMA m AGT_COMMA false>)       \
  AGT_KERNEL(normed_product##m##_f32, 256, Product, product<float AGT_COMMA m AGT_COMMA true>)           \
  AGT_KERNEL(normed_product##m##_bf16, 256, Product, product<agt::gpu::bf16 AGT_COMMA m AGT_COMMA true>)
AGT_PRODUCT(1)
AGT_PRODUCT(2)
AGT_PRODUCT(4)
AGT_BOTH(norm_rows, 128, Norm, norm_rows)
AGT_BOTH(norm_long, 256, Norm, norm_long)
AGT_BOTH(norm_rows_gradient, 256, NormGradient, norm_rows_gradient)
AGT_BOTH(norm_long_gradient, 256, NormGradient, norm_long_gradient)
AGT_BOTH(gate_gradient, 128, GateGradient, gate_gradient)
AGT_BOTH(turn, 128, Turn, turn)
AGT_BOTH(heads, 128, Heads, heads)
AGT_BOTH(head, 256, Head, head)
AGT_BOTH(head_gradient, 256, HeadGradient, head_gradient)
AGT_BOTH(sample, 512, Sample, sample)
