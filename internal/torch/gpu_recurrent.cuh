// Recurrent layers, of one new token of each sequence: a short convolution, the gated delta rule, and gates by a sigmoid. The
// states of a sequence are in a slot of the pools; where a step ends a block of the cache, a copy goes to another slot.
#pragma once
#include "gpu_common.cuh"

namespace agt {
namespace gpu {

// A thread is a channel's. What is rounded is what recurrent.cpp rounds.
template <class T>
__device__ void conv_step(const ConvStep &a) {
  const i64 c = i64(blockIdx.x) * blockDim.x + threadIdx.x, row = blockIdx.y;
  const int slot = a.slots[row], copy = a.copies[row], before = a.taps - 1;
  if (c >= a.channels || slot < 0) return;
  const T *x = static_cast<const T *>(a.x) + row * a.stride + c, *w = static_cast<const T *>(a.w) + c * a.taps;
  const T in = a.gated ? narrow<T>(wide(x[0]) * wide(x[2 * a.channels])) : x[0];
  auto window = [&](int slot) { return static_cast<T *>(a.windows) + i64(slot) * before * a.channels + c; };
  T *own = window(slot);
  float y = wide(in) * wide(w[before]);
  for (int j = before - 1; j >= 0; j--) y += wide(own[j * a.channels]) * wide(w[j]);
  if (a.bias) y += wide(static_cast<const T *>(a.bias)[c]);
  for (int j = 0; j < before; j++) {
    const T v = j + 1 < before ? own[(j + 1) * a.channels] : in;
    own[j * a.channels] = v;
    if (copy > 0) window(copy)[j * a.channels] = v;
  }
  static_cast<T *>(a.y)[row * a.channels + c] = narrow<T>(a.gated ? wide(x[a.channels]) * rounded<T>(y) : silu(y));
}

// Yang et al. 2024, "Gated Delta Networks", section 3.3, for one token: S = S·g + k·(β(v − g·Sᵀk))ᵀ, and Sᵀq. A block is a
// head's; several threads share a column of S. Then the head is normed and gated.
template <class T>
__device__ void delta_step(const DeltaStep &a) {
  __shared__ float q[kMostDelta], k[kMostDelta], parts[kDeltaThreads], sums[kDeltaThreads / 32];
  const int columns = (a.value_dim + 31) / 32 * 32, j = threadIdx.x % columns, first = threadIdx.x / columns, apart = blockDim.x / columns;
  const int head = blockIdx.x, key_head = head / (a.value_heads / a.key_heads);
  const i64 row = blockIdx.y, keys = i64(a.key_heads) * a.key_dim, values = i64(a.value_heads) * a.value_dim;
  const int slot = a.slots[row], copy = a.copies[row];
  if (slot < 0) return;
  const T *x = static_cast<const T *>(a.qkv) + row * (2 * keys + values);
  float of_q = 0, of_k = 0;
  for (int i = threadIdx.x; i < a.key_dim; i += blockDim.x) {
    q[i] = wide(x[key_head * a.key_dim + i]);
    k[i] = wide(x[keys + key_head * a.key_dim + i]);
    of_q += q[i] * q[i];
    of_k += k[i] * k[i];
  }
  of_q = 1 / (sqrtf(block_reduce(of_q, Add(), sums) + 1e-6f) * sqrtf(float(a.key_dim)));
  of_k = 1 / sqrtf(block_reduce(of_k, Add(), sums) + 1e-6f);
  for (int i = threadIdx.x; i < a.key_dim; i += blockDim.x) {
    q[i] *= of_q;
    k[i] *= of_k;
  }
  __syncthreads();
  // The sum over the threads of a column.
  auto column_sum = [&](float of_thread) {
    parts[threadIdx.x] = of_thread;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < apart; i++) sum += parts[i * columns + j];
    __syncthreads();
    return sum;
  };
  const bool has = j < a.value_dim;
  const i64 size = i64(a.key_dim) * a.value_dim, at = head * size + j;
  float *own = a.states + slot * a.value_heads * size + at, *other = a.states + copy * a.value_heads * size + at, sum = 0;
#pragma unroll 8
  for (int i = has ? first : a.key_dim; i < a.key_dim; i += apart) sum += k[i] * own[i64(i) * a.value_dim];
  const float seen = column_sum(sum), t = wide(static_cast<const T *>(a.decay)[row * a.stride + head]) + a.dt_bias[head];
  const float g = expf(-a.rate[head] * (t > 20 ? t : log1pf(expf(t))));
  const float beta = rounded<T>(sigmoid(wide(static_cast<const T *>(a.strength)[row * a.stride + head])));
  const float fresh = has ? beta * (wide(x[2 * keys + head * a.value_dim + j]) - g * seen) : 0;
  sum = 0;
  constexpr int together = 8;  // that are read before one is written: a compiler cannot know that they are not the same
  for (int from = has ? first : a.key_dim; from < a.key_dim; from += together * apart) {
    float s[together];
    auto each = [&](auto f) {
#pragma unroll
      for (int n = 0; n < together; n++)
        if (const int i = from + n * apart; i < a.key_dim) f(s[n], i, i64(i) * a.value_dim);
    };
    each([&](float &s, int, i64 at) { s = own[at]; });
    each([&](float &s, int i, i64 at) {
      s = g * s + k[i] * fresh;
      own[at] = s;
      if (copy > 0) other[at] = s;
      sum += q[i] * s;
    });
  }
  const float y = rounded<T>(column_sum(sum)), squares = block_reduce(first == 0 ? y * y : 0, Add(), sums);
  if (!has || first > 0) return;
  const float normed = rounded<T>(y / sqrtf(squares / float(a.value_dim) + a.eps)) * wide(static_cast<const T *>(a.norm)[j]);
  const float z = wide(static_cast<const T *>(a.gate)[row * a.stride + head * a.value_dim + j]);
  static_cast<T *>(a.y)[row * values + head * a.value_dim + j] = narrow<T>(rounded<T>(normed) * silu(z));
}

// Eight values are a thread's.
template <class T>
__device__ void gate_heads(const GateHeads &a) {
  const i64 at = (i64(blockIdx.x) * blockDim.x + threadIdx.x) * 8, n = i64(a.heads) * a.dim, row = at / n;
  if (row >= a.rows) return;
  const int head = int(at % n / a.dim), from = int(at % a.dim);
  Eight<T> x = load(static_cast<const T *>(a.x) + at);
  const Eight<T> g = load(static_cast<const T *>(a.gate) + row * a.stride + (2 * head + 1) * a.dim + from);
  for (int j = 0; j < 8; j++) x.v[j] = narrow<T>(wide(x.v[j]) * rounded<T>(sigmoid(wide(g.v[j]))));
  store(static_cast<T *>(a.x) + at, x);
}

}  // namespace gpu
}  // namespace agt
