// CPU kernels that libtorch has no fused form of, compiled once for each
// instruction set and chosen when the program starts. No ATen here: an inline
// function of ATen compiled with AVX-512 could be picked by the linker for all.
#pragma once
#include <stdint.h>

struct agt_sampling;

namespace agt {

struct bf16 {
  uint16_t bits;
};

// Paged: one new token of one kv head against its context. Positions
// first..ctx-1 are seen; blocks lists the pool blocks of the sequence.
struct PagedArgs {
  const int32_t *blocks;
  int64_t block_size, kv_heads, head, group, dim, first, ctx;
  double scale;
};

// The last len tokens of a context against all of it, for one kv head. Each pair
// of a token and a query head of the group is a column, numbered token first;
// the call computes columns first_col..first_col+cols-1, at most PREFILL_COLS.
constexpr int PREFILL_COLS = 64;
struct PrefillArgs {
  const int32_t *blocks;
  int64_t block_size, kv_heads, head, group, dim, ctx, len, window, first_col, cols;
  double scale;
  static int64_t scratch(int64_t dim) { return 2 * dim * PREFILL_COLS + 64 * dim + (64 + 3) * PREFILL_COLS; }
};

template <class S, class A>
struct Typed {
  // x [tokens, heads, dim], cos and sin [tokens, dim/2]
  void (*rope)(const S *x, const A *cos, const A *sin, S *y, int64_t tokens, int64_t heads, int64_t dim, A sign);
  // gu [rows, 2f] → y [rows, f]
  void (*silu_mul)(const S *gu, S *y, int64_t rows, int64_t f);
  void (*silu_mul_backward)(const S *gu, const S *dy, S *dx, int64_t rows, int64_t f);
  // add and sum may be null; else sum = x + add is what is normalised
  void (*rms_norm)(const S *x, const S *add, const S *w, S *sum, S *y, int64_t rows, int64_t n, double eps);
  // dw, in the accumulation type, is added to
  void (*rms_norm_backward)(const S *x, const S *w, const S *dy, S *dx, A *dw, int64_t rows, int64_t n, double eps);
  // q and out [group, dim]; scratch of 2·group·dim + group·ctx + dim
  void (*paged_decode)(const S *q, const S *kpool, const S *vpool, const PagedArgs &a, A *scratch, S *out);
  // q and out [len, kv_heads·group, dim], dim a multiple of 8; null for float64
  void (*paged_prefill)(const S *q, const S *kpool, const S *vpool, const PrefillArgs &a, float *scratch, S *out);
};

struct Kernels {
  const char *name;
  Typed<bf16, float> b;
  Typed<float, float> f;
  Typed<double, double> d;
  void (*sample)(const float *logits, int64_t vocab, const agt_sampling &o, float *scratch, int32_t *id, float *lp);
};

const Kernels &kernels();  // the best for this processor

}  // namespace agt
