//go:build libtorch

// What AVX-512 does with bfloat16 itself; the rest is of kernels_avx512.cpp.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <type_traits>

#include "kernels.h"
#define AGT_AVX512BF16
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,prefer-vector-width=512")

namespace agt {
namespace avx512bf16 {
namespace {
#include "panels.h"
#include "attend.h"
}  // namespace

void panel_bf16(const bf16 *x, int64_t ldx, int64_t rows, const bf16 *w, int64_t k, float *y, const bf16 *next) {
  panel<bf16>(x, ldx, rows, w, k, y, next);
}

void dots_bf16(const bf16 *x, int64_t ldx, int64_t rows, const bf16 *w, int64_t n, int64_t k, float *y) {
  dots<bf16>(x, ldx, rows, w, n, k, y);
}

void attend_bf16(const bf16 *q, const bf16 *kpool, const bf16 *vpool, const AttendArgs &a, char *scratch, float *m, float *z, float *acc) {
  attend<bf16>(q, kpool, vpool, a, scratch, m, z, acc);
}

}  // namespace avx512bf16
}  // namespace agt
