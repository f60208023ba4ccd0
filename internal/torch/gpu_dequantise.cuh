// Numbers of quantised weights as the CPU computes them: each product, sum and difference is rounded.
#pragma once
#include "block_types.h"
#include "code_kinds.h"
#include "gpu_common.cuh"

namespace agt {
namespace gpu {

// A float16 in float32.
__device__ inline float half_of(u32 bits) {
  const u32 size = bits & 0x7fffu;
  float x = __uint_as_float((size << 13) + (112u << 23));
  if (size < 0x400u) x = float(size) * 0x1p-24f;
  if (size >= 0x7c00u) x = __uint_as_float(0x7f800000u | size << 13);
  return __uint_as_float(__float_as_uint(x) | (bits & 0x8000u) << 16);
}

// The nearest float16 in float32, the even one of two.
__device__ inline float to_half(float x) {
  const u32 bits = __float_as_uint(x), size = bits & 0x7fffffffu;
  u32 near = (size + 0xfffu + (size >> 13 & 1u)) & ~0x1fffu;
  // Below 2^-14 they are multiples of 2^-24, as are the numbers from one half to one in float32.
  if (size < 0x38800000u) near = __float_as_uint(__fsub_rn(__fadd_rn(__uint_as_float(size), .5f), .5f));
  if (size >= 0x477ff000u) near = size > 0x7f800000u ? size : 0x7f800000u;
  return __uint_as_float(near | (bits & 0x80000000u));
}

template <class B, class T>
__device__ void dequantise_blocks(const DequantiseBlocks &a) {
  constexpr BlockForm f = B::form;
  const i64 block = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (block >= a.blocks) return;
  int8_t q[f.values];
  BlockScales s;
  B::unpack(a.data + block * f.bytes, q, &s, a.codebooks);
  const float scale = f.floats ? 0 : __fmul_rn(f.unit, half_of(s.scale)), least = f.least ? half_of(s.least) : 0;
  T *y = static_cast<T *>(a.y) + block * f.values;
#pragma unroll 1
  for (int i = 0; i < f.values; i += 8) {
    const int g = i / int(f.group);
    const float by = f.floats ? s.group_scale[g] : f.factors ? __fmul_rn(scale, float(s.factor[g])) : scale;
    const float plus = f.least && f.factors ? __fmul_rn(least, float(s.least_factor[g])) : least;
    Eight<T> out;
    for (int j = 0; j < 8; j++) {
      const float x = __fmul_rn(by, float(q[i + j] - f.zero));
      out.v[j] = narrow<T>(f.least ? __fadd_rn(x, plus) : x);
    }
    store(y + i, out);
  }
}

// The code in a stored row and column, in the lowest bits. Divisions of 64 bits are slow on a GPU.
__device__ inline u32 code_at(const DequantiseCodes &c, u32 row, u32 col) {
  const u32 log = c.bits == 8 ? 2 : c.bits == 4 ? 3 : 4, last = (1u << log) - 1;  // a word has 1 << log codes
  const bool down = c.order == DOWN;
  u32 place = (down ? row : col) & last;
  if (c.order == INTERLEAVED) place = (place & 1) * 4 + place / 2;
  const u32 at = place * u32(c.bits);
  const unsigned char *word = c.data + i64(down ? row >> log : row) * c.stride + 4 * i64(down ? col : col >> log);
  return u32(word[at / 8]) >> at % 8 & ((1u << c.bits) - 1);
}

__device__ inline float value_of(int meaning, u32 code) {
  if (meaning == UNSIGNED) return float(code);
  if (meaning == SIGNED) return float((signed char)(code));
  // A number whose exponent's bits are zero is as many of the smallest as the other bits say.
  const bool wide = meaning == E4M3;
  const u32 size = code & (wide ? 0x7fu : 7u);
  float x = __uint_as_float(wide ? (size << 20) + (120u << 23) : (size << 22) + (126u << 23));
  if (size < (wide ? 8u : 2u)) x = float(size) * (wide ? 0x1p-9f : .5f);
  if (wide && size == 0x7fu) x = NAN;
  return __uint_as_float(__float_as_uint(x) | (code & (wide ? 0x80u : 8u)) << (wide ? 24 : 28));
}

// The number in a stored row, of all matrices, and column.
__device__ inline float number_at(const DequantiseCodes &c, u32 row, u32 col) {
  const u32 down = c.groups && c.transposed ? c.groups[row] : row / u32(c.high);
  const i64 scale = i64(down) * c.across + (c.groups && !c.transposed ? c.groups[col] : col / u32(c.wide));
  const float value = value_of(c.meaning, code_at(c, row, col));
  const float x = __fmul_rn(__fsub_rn(value, c.zeros ? c.zeros[scale] : 0), c.scales[scale]);
  if (c.rounding == TO_HALF) return to_half(x);
  return c.rounding == TO_BF16 ? wide(narrow<bf16>(x)) : x;
}

// Both sides of a transposed tile are read and written along their rows.
template <class T>
__device__ void dequantise_codes(const DequantiseCodes &c) {
  __shared__ float tile[kCodeTile][kCodeTile + 1];
  const i64 across = (c.cols + kCodeTile - 1) / kCodeTile, down = (c.rows + kCodeTile - 1) / kCodeTile;
  const i64 matrix = blockIdx.x / (across * down), at = blockIdx.x % (across * down);
  const i64 row = at / across * kCodeTile, col = at % across * kCodeTile;
  T *y = static_cast<T *>(c.y) + matrix * c.rows * c.cols;
  const int lane = threadIdx.x % kCodeTile, first = threadIdx.x / kCodeTile, step = blockDim.x / kCodeTile;
  for (int i = first; i < kCodeTile; i += step) {
    if (row + i >= c.rows || col + lane >= c.cols) continue;
    const float x = number_at(c, u32(matrix * c.rows + row + i), u32(col + lane));
    if (c.transposed) tile[i][lane] = x;
    else y[(row + i) * c.cols + col + lane] = narrow<T>(x);
  }
  if (!c.transposed) return;
  __syncthreads();
  for (int i = first; i < kCodeTile; i += step)
    if (row + lane < c.rows && col + i < c.cols) y[(col + i) * c.rows + row + lane] = narrow<T>(tile[lane][i]);
}

}  // namespace gpu
}  // namespace agt
