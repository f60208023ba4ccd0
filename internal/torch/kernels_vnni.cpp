//go:build libtorch

// Products with weights of 4 and 8 bits by AVX-512's sums of products of 16-bit numbers.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <type_traits>

#include "kernels.h"
#include "quant.h"
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,prefer-vector-width=512")

namespace agt {
namespace avx512vnni {
namespace {

#include "prefetch.h"

inline __m512 wide16(const bf16 *x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(x))), 16));
}

inline __m512 wide_half(const uint16_t *x) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(x))); }
inline __m512 wide_byte(const int8_t *x) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x))));
}

// A panel's scales of 64 outputs, group by group in order. KINDS 2: with least values.
template <int KINDS, bool FACTORS>
struct Scales {
  const uint16_t *scale;
  const int8_t *factor;
  int64_t block;
  __m512 unit[KINDS][4];

  Scales(const QuantPanel &w, const char *base)
      : scale(reinterpret_cast<const uint16_t *>(base + w.scale)),
        factor(reinterpret_cast<const int8_t *>(base + w.factor)),
        block(w.block) {}
  // The group that begins at that input.
  void enter(int64_t from) {
    if (FACTORS && from != 0) factor += 64 * KINDS;
    if (from % block != 0) return;
    for (int kind = 0; kind < KINDS; kind++)
      for (int v = 0; v < 4; v++) unit[kind][v] = wide_half(scale + kind * 64 + 16 * v);
    scale += 64 * KINDS;
  }
  // 16 outputs' scales (kind 0) or least values (1).
  __m512 at(int kind, int v) const {
    if (!FACTORS) return unit[kind][v];
    return _mm512_mul_ps(unit[kind][v], wide_byte(factor + kind * 64 + 16 * v));
  }
};

// The products of a group's inputs are summed as whole numbers: 32·32767·127 is below 2^31. The sums of
// groups are added in order, so that a row's numbers do not depend on the rows beside it.
template <int R, int BITS, int KINDS, bool FACTORS, int LINES>
void some_rows(const QuantRows &x, int64_t k, const QuantPanel &w, const char *base, const char *next, int64_t pass, int64_t passes, float *y) {
  Scales<KINDS, FACTORS> scales(w, base);
  Prefetch<LINES, _MM_HINT_T1> prefetch(next, pass, passes, k * BITS / 16, 128);
  const int64_t group = w.group;
  const int8_t *q = reinterpret_cast<const int8_t *>(base + w.q);
  const __m512i half = _mm512_set1_epi16(15);
  __m512 sum[R][4];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 4; v++) sum[r][v] = _mm512_setzero_ps();
  auto pair = [&](int r, int64_t i) {
    int32_t two;
    memcpy(&two, x.q + r * k + i, 4);
    return _mm512_set1_epi32(two);
  };
  for (int64_t from = 0; from < k; from += group) {
    scales.enter(from);
    __m512i acc[R][4];
    for (int r = 0; r < R; r++)
      for (int v = 0; v < 4; v++) acc[r][v] = _mm512_setzero_si512();
    constexpr int64_t step = BITS == 4 ? 4 : 2;
    for (int64_t i = from; i < from + group; i += step, q += 128) {
      prefetch.take_step();
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
    float xs[R], xl[R];
    for (int r = 0; r < R; r++) {
      xs[r] = x.scale[r * (k / 32) + from / 32];
      const float *of = x.sum + r * (k / 16) + from / 16;
      xl[r] = group == 32 ? of[0] + of[1] : of[0];
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
      const __m512 s = scales.at(0, v);
#pragma GCC unroll 4
      for (int r = 0; r < R; r++)
        sum[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][v]), _mm512_mul_ps(s, _mm512_set1_ps(xs[r])), sum[r][v]);
      if (KINDS == 2) {
        const __m512 l = scales.at(1, v);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) sum[r][v] = _mm512_fmadd_ps(l, _mm512_set1_ps(xl[r]), sum[r][v]);
      }
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 4; v++) _mm512_storeu_ps(y + r * 64 + 16 * v, sum[r][v]);
}

constexpr int64_t passes_of(int64_t) { return 1; }

#include "quant_rows.h"

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

void quant_panel(const QuantRows &x, int64_t rows, int64_t k, const QuantPanel &w, const char *base, const QuantPanel *next, float *y) {
  if (w.bits == 4) of_bits<4>(x, rows, k, w, base, next, y);
  else of_bits<8>(x, rows, k, w, base, next, y);
}

}  // namespace avx512vnni
}  // namespace agt
