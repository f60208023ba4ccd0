// The language of CUDA kernels on a CPU: the threads of a block are fibers of one thread
// of the host, which change at barriers and exchanges. A thread that waits at a barrier
// for others that have ended, or at another one, is an error: on a GPU it would hang.
#pragma once
#include <math.h>
#include <string.h>

#include <algorithm>

namespace blocks {

struct Index {
  unsigned x, y, z;
};

struct Fiber;
struct Block;
extern thread_local Fiber *now;  // the fiber that runs

Index thread_index();
Index block_index();
Index block_size();
Index grid_size();

// Barriers: the block's, and a warp's.
void sync_block();
void sync_warp();
// A place of 8 bytes of lane `lane` of this fiber's warp.
void *place(unsigned lane);
unsigned lane();

template <class T>
T exchange(T x, unsigned by) {
  static_assert(sizeof(T) <= 8);
  memcpy(place(lane()), &x, sizeof x);
  sync_warp();
  T y;
  memcpy(&y, place(lane() ^ by), sizeof y);
  sync_warp();
  return y;
}

// mma.m16n8k16, see gpu_experts.cuh: sums in float32, of numbers in the upper and lower halves of words.
void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);

// Runs body in every thread of every block.
void run(unsigned x, unsigned y, unsigned z, unsigned threads, void (*body)(const void *), const void *args);

inline float float_of(unsigned u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
inline unsigned bits_of(float f) {
  unsigned u;
  memcpy(&u, &f, 4);
  return u;
}

}  // namespace blocks

#define __global__
#define __device__
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define threadIdx (blocks::thread_index())
#define blockIdx (blocks::block_index())
#define blockDim (blocks::block_size())
#define gridDim (blocks::grid_size())
#define __syncthreads() blocks::sync_block()
#define __syncwarp() blocks::sync_warp()
#define __shfl_xor_sync(mask, x, by) blocks::exchange(x, by)
#define __fmul_rn(x, y) ((x) * (y))
#define __fadd_rn(x, y) ((x) + (y))
#define __fsub_rn(x, y) ((x) - (y))
#define __uint_as_float(u) blocks::float_of(u)
#define __float_as_uint(f) blocks::bits_of(f)
using std::max;
using std::min;
