// What our kernels for a device share: types, reads of eight values, sums over a warp or a block.
#pragma once
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

// Programmatic dependent launch (CUDA C++ Programming Guide): in a recorded step a kernel starts while
// the one before it still runs. Before await_last it reads only what no kernel of the step writes.
__device__ inline void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ inline void await_last() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

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

// Eight bfloat16 values as they lie in registers: a compiler keeps each Eight<bf16> in eight of them.
struct alignas(16) Packed {
  u32 words[4];
};
__device__ inline float wide(const Packed &x, int j) {
  return __uint_as_float(j % 2 ? x.words[j / 2] & 0xffff0000u : x.words[j / 2] << 16);
}
__device__ inline Packed load_packed(const bf16 *p) { return *reinterpret_cast<const Packed *>(p); }

__device__ inline Packed packed(const Eight<bf16> &x) {
  Packed p;
  for (int i = 0; i < 4; i++) p.words[i] = x.v[2 * i].bits | u32(x.v[2 * i + 1].bits) << 16;
  return p;
}

template <class T>
__device__ inline float rounded(float x) { return wide(narrow<T>(x)); }

__device__ inline float sigmoid(float x) { return 1 / (1 + expf(-x)); }
__device__ inline float silu(float x) { return x / (1 + expf(-x)); }
__device__ inline float gelu(float x) { return .5f * x * (1 + tanhf(.7978845608028654f * (x + .044715f * x * x * x))); }

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

// f(i, value) for the entries of a row of n that are this thread's, of a block's.
template <class T, class F>
__device__ inline void each_entry(const T *row, i64 n, F f) {
  if (n % 8 == 0) {
#pragma unroll 1  // eight are enough at once, and NVRTC takes seconds for more
    for (i64 i = i64(threadIdx.x) * 8; i < n; i += i64(blockDim.x) * 8) {
      const Eight<T> v = load(row + i);
      for (int j = 0; j < 8; j++) f(i + j, wide(v.v[j]));
    }
    return;
  }
#pragma unroll 1
  for (i64 i = threadIdx.x; i < n; i += blockDim.x) f(i, wide(row[i]));
}

}  // namespace gpu
}  // namespace agt
