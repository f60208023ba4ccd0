//go:build libtorch

// Products with weights of 4 and 8 bits by AVX-512's sums of products of 16-bit numbers.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>

#include "kernels.h"
#include "quant.h"
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,prefer-vector-width=512")

namespace agt {
namespace avx512vnni {
namespace {

inline __m512 wide16(const bf16 *x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(x))), 16));
}

// The products of a group's inputs are summed as whole numbers: 32·32767·127 is below 2^31. The sums of
// groups are added in order, so that a row's numbers do not depend on the rows beside it.
template <int R, int BITS>
void some_rows(const QuantRows &x, int64_t k, const QuantPanel &w, const char *base, float *y, int64_t ldy) {
  const int8_t *q = reinterpret_cast<const int8_t *>(base + w.q);
  const float *scale = reinterpret_cast<const float *>(base + w.scale);
  const float *least = w.least < 0 ? nullptr : reinterpret_cast<const float *>(base + w.least);
  const __m512i half = _mm512_set1_epi16(15);
  __m512 sum[R][4];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 4; v++) sum[r][v] = _mm512_setzero_ps();
  auto pair = [&](int r, int64_t i) {
    int32_t two;
    memcpy(&two, x.q + r * k + i, 4);
    return _mm512_set1_epi32(two);
  };
  for (int64_t from = 0; from < k; from += w.group, scale += 64) {
    __m512i acc[R][4];
    for (int r = 0; r < R; r++)
      for (int v = 0; v < 4; v++) acc[r][v] = _mm512_setzero_si512();
    constexpr int64_t step = BITS == 4 ? 4 : 2;
    for (int64_t i = from; i < from + w.group; i += step, q += 128) {
      __m512i low[4], high[4];
      for (int v = 0; v < 4; v++) {
        const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(q) + v);
        if (BITS == 4) {
          const __m512i both = _mm512_cvtepu8_epi16(bytes);
          low[v] = _mm512_and_si512(both, half);
          high[v] = _mm512_srli_epi16(both, 4);
        } else {
          low[v] = _mm512_cvtepi8_epi16(bytes);
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) {
        const __m512i xr = pair(r, i);
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) acc[r][v] = _mm512_dpwssd_epi32(acc[r][v], low[v], xr);
        if (BITS == 4) {
          const __m512i next = pair(r, i + 2);
#pragma GCC unroll 4
          for (int v = 0; v < 4; v++) acc[r][v] = _mm512_dpwssd_epi32(acc[r][v], high[v], next);
        }
      }
    }
    for (int r = 0; r < R; r++) {
      const __m512 xs = _mm512_set1_ps(x.scale[r * (k / 32) + from / 32]);
      for (int v = 0; v < 4; v++) {
        const __m512 s = _mm512_mul_ps(_mm512_loadu_ps(scale + 16 * v), xs);
        sum[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][v]), s, sum[r][v]);
      }
    }
    if (least) {
      for (int r = 0; r < R; r++) {
        const float *of = x.sum + r * (k / 16) + from / 16;
        const __m512 xs = _mm512_set1_ps(w.group == 32 ? of[0] + of[1] : of[0]);
        for (int v = 0; v < 4; v++) sum[r][v] = _mm512_fmadd_ps(_mm512_loadu_ps(least + 16 * v), xs, sum[r][v]);
      }
      least += 64;
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 4; v++) _mm512_storeu_ps(y + r * ldy + 16 * v, sum[r][v]);
}

template <int BITS>
void all_rows(QuantRows x, int64_t rows, int64_t k, const QuantPanel &w, const char *base, float *y) {
  while (rows > 0) {
    const int64_t n = std::min<int64_t>(rows, 4);
    switch (n) {
      case 1: some_rows<1, BITS>(x, k, w, base, y, 64); break;
      case 2: some_rows<2, BITS>(x, k, w, base, y, 64); break;
      case 3: some_rows<3, BITS>(x, k, w, base, y, 64); break;
      case 4: some_rows<4, BITS>(x, k, w, base, y, 64); break;
    }
    rows -= n;
    y += n * 64;
    x = {x.q + n * k, x.scale + n * (k / 32), x.sum + n * (k / 16)};
  }
}

}  // namespace

void quant_row(const bf16 *x, int64_t k, const QuantRows &to) {
  for (int64_t i = 0; i < k; i += 32) {
    const __m512 a = wide16(x + i), b = wide16(x + i + 16);
    const float most = std::max(_mm512_reduce_max_ps(_mm512_abs_ps(a)), _mm512_reduce_max_ps(_mm512_abs_ps(b)));
    const float scale = most / 32767.f;
    const __m512 inverse = _mm512_set1_ps(scale > 0 ? 1.f / scale : 0.f);
    const __m512i limit = _mm512_set1_epi32(32767);
    const __m512i qa = _mm512_min_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)), limit);
    const __m512i qb = _mm512_min_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)), limit);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(to.q + i), _mm512_cvtsepi32_epi16(qa));
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(to.q + i + 16), _mm512_cvtsepi32_epi16(qb));
    to.scale[i / 32] = scale;
    to.sum[i / 16] = _mm512_reduce_add_ps(a);
    to.sum[i / 16 + 1] = _mm512_reduce_add_ps(b);
  }
}

void quant_panel(const QuantRows &x, int64_t rows, int64_t k, const QuantPanel &w, const char *base, float *y) {
  if (w.bits == 4) all_rows<4>(x, rows, k, w, base, y);
  else all_rows<8>(x, rows, k, w, base, y);
}

}  // namespace avx512vnni
}  // namespace agt
