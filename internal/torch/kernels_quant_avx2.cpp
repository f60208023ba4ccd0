//go:build libtorch

// Products with weights of 4 and 8 bits by AVX2, added up in the order of kernels_vnni.cpp.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <type_traits>

#include "kernels.h"
#include "quant.h"
#pragma GCC target("avx2,fma,f16c")

namespace agt {
namespace avx2quant {
namespace {

#include "prefetch.h"

inline __m256 wide8(const bf16 *x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x))), 16));
}
inline __m256 wide_half(const uint16_t *x) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x))); }
inline __m256 wide_byte(const int8_t *x) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(x))));
}
inline __m256i bytes16(const int8_t *x, bool with_sign) {
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i *>(x));
  return with_sign ? _mm256_cvtepi8_epi16(b) : _mm256_cvtepu8_epi16(b);
}

// The scales of V times 8 outputs of a panel from the first on, group by group in order. KINDS 2: with least values.
template <int V, int KINDS, bool FACTORS>
struct Scales {
  const uint16_t *scale;
  const int8_t *factor;
  int64_t block;
  __m256 unit[KINDS][V];

  Scales(const QuantPanel &w, const char *base, int64_t first)
      : scale(reinterpret_cast<const uint16_t *>(base + w.scale) + first),
        factor(reinterpret_cast<const int8_t *>(base + w.factor) + first),
        block(w.block) {}
  void enter(int64_t from) {
    if (FACTORS && from != 0) factor += 64 * KINDS;
    if (from % block != 0) return;
    for (int kind = 0; kind < KINDS; kind++)
      for (int v = 0; v < V; v++) unit[kind][v] = wide_half(scale + kind * 64 + 8 * v);
    scale += 64 * KINDS;
  }
  __m256 at(int kind, int v) const {
    if (!FACTORS) return unit[kind][v];
    return _mm256_mul_ps(unit[kind][v], wide_byte(factor + kind * 64 + 8 * v));
  }
};

// V times 8 outputs from the first on, of R rows.
template <int R, int V, int BITS, int KINDS, bool FACTORS, class P>
void some_outputs(const QuantRows &x, int64_t k, const QuantPanel &w, const char *base, int64_t first, P prefetch, float *y) {
  Scales<V, KINDS, FACTORS> scales(w, base, first);
  const int64_t group = w.group;
  const int8_t *q = reinterpret_cast<const int8_t *>(base + w.q) + 2 * first;
  const __m256i half = _mm256_set1_epi16(15);
  __m256 sum[R][V];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < V; v++) sum[r][v] = _mm256_setzero_ps();
  auto pair = [&](int r, int64_t i) {
    int32_t two;
    memcpy(&two, x.q + r * k + i, 4);
    return _mm256_set1_epi32(two);
  };
  for (int64_t from = 0; from < k; from += group) {
    scales.enter(from);
    __m256i acc[R][V];
    for (int r = 0; r < R; r++)
      for (int v = 0; v < V; v++) acc[r][v] = _mm256_setzero_si256();
    constexpr int64_t step = BITS == 4 ? 4 : 2;
    for (int64_t i = from; i < from + group; i += step, q += 128) {
      prefetch.take_step();
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) {
        const __m256i both = bytes16(q + 16 * v, BITS == 8), low = BITS == 4 ? _mm256_and_si256(both, half) : both;
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) acc[r][v] = _mm256_add_epi32(acc[r][v], _mm256_madd_epi16(low, pair(r, i)));
        if (BITS == 4) {
          const __m256i high = _mm256_srli_epi16(both, 4);
#pragma GCC unroll 4
          for (int r = 0; r < R; r++) acc[r][v] = _mm256_add_epi32(acc[r][v], _mm256_madd_epi16(high, pair(r, i + 2)));
        }
      }
    }
    float xs[R], xl[R];
    for (int r = 0; r < R; r++) {
      xs[r] = x.scale[r * (k / 32) + from / 32];
      const float *of = x.sum + r * (k / 16) + from / 16;
      xl[r] = group == 32 ? of[0] + of[1] : of[0];
    }
    for (int v = 0; v < V; v++) {
      const __m256 s = scales.at(0, v);
      for (int r = 0; r < R; r++)
        sum[r][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][v]), _mm256_mul_ps(s, _mm256_set1_ps(xs[r])), sum[r][v]);
      if (KINDS == 2) {
        const __m256 l = scales.at(1, v);
        for (int r = 0; r < R; r++) sum[r][v] = _mm256_fmadd_ps(l, _mm256_set1_ps(xl[r]), sum[r][v]);
      }
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < V; v++) _mm256_storeu_ps(y + r * 64 + first + 8 * v, sum[r][v]);
}

constexpr int64_t vectors_of(int64_t rows) { return rows == 1 ? 8 : rows == 2 ? 4 : 2; }  // the sums stay in registers
constexpr int64_t passes_of(int64_t rows) { return 8 / vectors_of(rows); }

template <int R, int BITS, int KINDS, bool FACTORS, int LINES>
void some_rows(const QuantRows &x, int64_t k, const QuantPanel &w, const char *base, const char *next, int64_t pass, int64_t passes, float *y) {
  constexpr int V = vectors_of(R);
  for (int64_t first = 0; first < 64; first += 8 * V)
    some_outputs<R, V, BITS, KINDS, FACTORS>(x, k, w, base, first, Prefetch<LINES, _MM_HINT_T1>(next, pass++, passes, k * BITS / 16, 128), y);
}

#include "quant_rows.h"

inline float most_of(__m256 a) {
  float lanes[8];
  _mm256_storeu_ps(lanes, a);
  return *std::max_element(lanes, lanes + 8);
}

// As _mm512_reduce_add_ps adds up 16 lanes: halves onto each other.
inline float sum_of(__m256 a, __m256 b) {
  const __m256 eight = _mm256_add_ps(a, b);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace

void quant_row(const bf16 *x, int64_t k, const QuantRows &to) {
  const __m256 positive = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  for (int64_t i = 0; i < k; i += 32) {
    __m256 part[4], most = _mm256_setzero_ps();
    for (int j = 0; j < 4; j++) {
      part[j] = wide8(x + i + 8 * j);
      most = _mm256_max_ps(most, _mm256_and_ps(part[j], positive));
    }
    const float scale = most_of(most) / 32767.f;
    const __m256 inverse = _mm256_set1_ps(scale > 0 ? 1.f / scale : 0.f);
    const __m256i limit = _mm256_set1_epi32(32767);
    for (int j = 0; j < 4; j++) {
      const __m256i q = _mm256_min_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(part[j], inverse)), limit);
      _mm_storeu_si128(reinterpret_cast<__m128i *>(to.q + i + 8 * j), _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1)));
    }
    to.scale[i / 32] = scale;
    to.sum[i / 16] = sum_of(part[0], part[1]);
    to.sum[i / 16 + 1] = sum_of(part[2], part[3]);
  }
}

void quant_panel(const QuantRows &x, int64_t rows, int64_t k, const QuantPanel &w, const char *base, const QuantPanel *next, float *y) {
  if (w.bits == 4) of_bits<4>(x, rows, k, w, base, next, y);
  else of_bits<8>(x, rows, k, w, base, next, y);
}

}  // namespace avx2quant
}  // namespace agt
