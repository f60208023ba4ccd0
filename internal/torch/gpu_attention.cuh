// Attention of one new token a sequence to the paged cache.
#pragma once
#include "gpu_common.cuh"

namespace agt {
namespace gpu {

// FlashDecoding (Dao et al. 2023): the context is cut into splits of a fixed length, which
// are computed side by side and put together. `lanes` threads read a key, P times eight
// dimensions each; G is how many query heads share it.
template <class T, int G, int P>
__device__ void decode(const Decode &a) {
  constexpr int warps = kDecodeThreads / 32;
  __shared__ float top[warps][G], sum[warps][G], rows[warps][G][P * kHeadPart];
  const int group = a.heads / a.kv_heads, pieces = (group + G - 1) / G;
  const int seq = blockIdx.z, kv = blockIdx.y / pieces, first = kv * group + blockIdx.y % pieces * G;
  const int heads = min(G, (kv + 1) * group - first);
  const int context = a.context[seq];
  const int begin = a.window > 0 && context > a.window ? context - int(a.window) : 0;
  const int split = int(decode_split(context - begin)), from = begin + int(blockIdx.x) * split, to = min(context, from + split);
  if (from >= context) {
    await_last();  // a kernel ends behind the one before it
    return;
  }
  const int lane = threadIdx.x % a.lanes, worker = threadIdx.x / a.lanes, workers = kDecodeThreads / a.lanes;
  auto place = [&](int p) { return p * kHeadPart + lane * 8; };  // of a lane's p-th eight dimensions
  const bool any = lane * 8 < a.dim;
  auto has = [&](int p) { return P == 1 ? any : place(p) < a.dim; };
  const T *keys = static_cast<const T *>(a.keys), *values = static_cast<const T *>(a.values);
  const i64 row = a.row[seq], width = *a.width;

  Eight<T> k[P]{}, v[P]{}, next_k[P]{}, next_v[P]{};
  auto fetch = [&](int pos) {
    if (pos >= to || !any) return;
    const i64 block = a.table[seq * width + pos / a.block];
    const i64 at = ((block * a.block + pos % a.block) * a.kv_heads + kv) * a.dim;
#pragma unroll
    for (int p = 0; p < P; p++)
      if (has(p)) {
        next_k[p] = load(keys + at + place(p));
        next_v[p] = load(values + at + place(p));
      }
  };
  fetch(from + worker);  // of an earlier step, but for the newest position
  await_last();
  if (from + worker == context - 1) fetch(from + worker);
  float q[G][8 * P], acc[G][8 * P], m[G], l[G];
  for (int g = 0; g < G; g++) {
    m[g] = -INFINITY;
    l[g] = 0;
#pragma unroll
    for (int p = 0; p < P; p++) {
      Eight<T> x{};
      if (has(p) && g < heads) x = load(static_cast<const T *>(a.q) + (row * a.heads + first + g) * a.dim + place(p));
      for (int j = 0; j < 8; j++) {
        q[g][8 * p + j] = wide(x.v[j]) * a.scale;
        acc[g][8 * p + j] = 0;
      }
    }
  }
  for (int base = from; base < to; base += workers) {  // as often in all threads: they exchange products
    const int pos = base + worker;
    const bool live = pos < to;
#pragma unroll
    for (int p = 0; p < P; p++) {
      k[p] = next_k[p];
      v[p] = next_v[p];
    }
    fetch(pos + workers);  // while this one is computed
    for (int g = 0; g < G; g++) {
      float s = 0;
      for (int j = 0; j < 8 * P; j++) s += q[g][j] * wide(k[j / 8].v[j % 8]);
      s = warp_reduce(s, Add(), a.lanes);
      if (!live) continue;
      const float higher = fmaxf(m[g], s), keep = exp2f(m[g] - higher), p = exp2f(s - higher);
      m[g] = higher;
      l[g] = l[g] * keep + p;
      for (int j = 0; j < 8 * P; j++) acc[g][j] = acc[g][j] * keep + p * wide(v[j / 8].v[j % 8]);
    }
  }
  // What the workers of a warp have seen, and then the warps.
  const int warp = threadIdx.x / 32;
  for (int g = 0; g < G; g++) {
    for (int o = a.lanes; o < 32; o *= 2) {
      const float other = __shfl_xor_sync(kAll, m[g], o), higher = fmaxf(m[g], other);
      const float mine = m[g] == higher ? 1 : exp2f(m[g] - higher), theirs = other == higher ? 1 : exp2f(other - higher);
      l[g] = l[g] * mine + __shfl_xor_sync(kAll, l[g], o) * theirs;
      for (int j = 0; j < 8 * P; j++) acc[g][j] = acc[g][j] * mine + __shfl_xor_sync(kAll, acc[g][j], o) * theirs;
      m[g] = higher;
    }
    if (threadIdx.x % 32 >= a.lanes || !any) continue;
    if (lane == 0) {
      top[warp][g] = m[g];
      sum[warp][g] = l[g];
    }
    for (int j = 0; j < 8 * P; j++) rows[warp][g][place(j / 8) + j % 8] = acc[g][j];
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

}  // namespace gpu
}  // namespace agt
