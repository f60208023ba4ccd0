// Attention of new tokens to the cache, by the products of panels.h: keys are the outputs of
// one product, the numbers of a head those of the other. Included behind panels.h.
//
// A context is cut at the multiples of ATTEND_KEYS. What a query gets of one such chunk depends
// on the query and the chunk alone, and chunks are added up in order. So whether a prompt is
// computed in one piece or in many, by how many threads, and beside which others, its numbers
// are the same to the bit.

#include "pow2.h"

// 2^x for x of at most 0; 0 below the smallest normal number.
inline __m512 pow2(__m512 x) {
  const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.f), _CMP_GE_OQ);
  const __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);  // x − ⌊x⌋
  __m512 p = _mm512_set1_ps(POW2[0]);
  for (int i = 1; i < 6; i++) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(POW2[i]));
  return _mm512_maskz_scalef_ps(normal, p, x);  // p·2^⌊x⌋
}
inline float exp1(float x) { return _mm512_cvtss_f32(pow2(_mm512_set1_ps(x * LOG2E))); }

#include "transpose.h"

// Up to 64 keys, a multiple of 16, as a panel: dwords [dim·size/4][64].
template <class S>
void keys_panel(const S *const *rows, int64_t n, int64_t dim, S *panel) {
  const int64_t words = dim * int64_t(sizeof(S)) / 4;
  int32_t *to = reinterpret_cast<int32_t *>(panel);
  for (int64_t t = 0; t < n; t += 16) {
    for (int64_t d = 0; d < words; d += 16) {
      const int64_t there = std::min<int64_t>(16, words - d);
      const __mmask16 mask = __mmask16((1u << there) - 1);
      __m512i r[16];
      for (int64_t i = 0; i < 16; i++)
        r[i] = _mm512_maskz_loadu_epi32(mask, reinterpret_cast<const int32_t *>(rows[t + i]) + d);
      transpose16(r);
      for (int64_t i = 0; i < there; i++) _mm512_storeu_si512(to + (d + i) * 64 + t, r[i]);
    }
  }
}

// The first 32 numbers of two rows in turn, those of the mask; the others are zeros.
inline void interleave(const bf16 *a, const bf16 *b, __mmask32 of_a, __mmask32 of_b, __m512i to[2]) {
  alignas(64) static const uint16_t order[64] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                 11, 43, 12, 44, 13, 45, 14, 46, 15, 47, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53,
                                                 22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
  const __m512i x = _mm512_maskz_loadu_epi16(of_a, a), y = _mm512_maskz_loadu_epi16(of_b, b);
  to[0] = _mm512_permutex2var_epi16(x, _mm512_load_si512(order), y);
  to[1] = _mm512_permutex2var_epi16(x, _mm512_load_si512(order + 32), y);
}

// Values of `even` tokens, of which the first n are there, as panels of 64 of a head's numbers.
inline void values_panel(const float *const *rows, int64_t n, int64_t even, int64_t dim, float *panel) {
  for (int64_t d = 0; d < dim; d += 64, panel += 64 * even)
    for (int64_t t = 0; t < even; t++)
      for (int64_t v = 0; v < 64; v += 16)
        _mm512_storeu_ps(panel + t * 64 + v, _mm512_maskz_loadu_ps(t < n ? first16(dim - d - v) : 0, rows[t] + d + v));
}
inline void values_panel(const bf16 *const *rows, int64_t n, int64_t even, int64_t dim, bf16 *panel) {
  for (int64_t d = 0; d < dim; d += 64, panel += 64 * even)
    for (int64_t t = 0; t < even; t += 2)
      for (int64_t v = 0; v < 64; v += 32) {
        const __mmask32 mask = first32(dim - d - v);
        __m512i pairs[2];
        interleave(rows[t] + d + v, rows[t + 1] + d + v, t < n ? mask : 0, t + 1 < n ? mask : 0, pairs);
        _mm512_storeu_si512(panel + t * 64 + 2 * v, pairs[0]);
        _mm512_storeu_si512(panel + t * 64 + 2 * v + 32, pairs[1]);
      }
}

// p is stored; what is stored is returned.
inline __m512 store16(float *to, __m512 p) {
  _mm512_storeu_ps(to, p);
  return p;
}
inline __m512 store16(bf16 *to, __m512 p) {
#ifdef AGT_AVX512BF16
  __m256bh h = _mm512_cvtneps_pbh(p);
  __m256i bits;
  memcpy(&bits, &h, sizeof bits);
#else  // the same rounding: to the nearest, a tie to the even one
  const __m512i x = _mm512_castps_si512(p), odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(x, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m256i bits = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
#endif
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), bits);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// The scores [2][cols][64] of n keys become weights p [cols, ATTEND_KEYS] relative to each
// column's largest, which goes to m; their sum goes to z. ALL: column c sees all ATTEND_KEYS keys.
template <bool ALL, class S>
void weights_of_column(const float *scores, const AttendArgs &a, int64_t n, int64_t c, S *p, float *m, float *z) {
  const __m512 scale = _mm512_set1_ps(a.scale), least = _mm512_set1_ps(-1e30f), log2e = _mm512_set1_ps(LOG2E);
  const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const int64_t vectors = ALL ? ATTEND_KEYS / 16 : (n + 15) / 16;
  const __m512i first = _mm512_set1_epi32(int32_t(std::max<int64_t>(a.first[c] - a.from, 0)));
  const __m512i end = _mm512_set1_epi32(int32_t(std::min<int64_t>(a.end[c] - a.from, n)));
  __m512 s[ATTEND_KEYS / 16], top = least;
  __mmask16 seen[ATTEND_KEYS / 16];
  for (int64_t v = 0; v < vectors; v++) {
    s[v] = _mm512_mul_ps(_mm512_loadu_ps(scores + (v / 4 * a.cols + c) * 64 + v % 4 * 16), scale);
    if (!ALL) {
      const __m512i at = _mm512_add_epi32(count, _mm512_set1_epi32(int32_t(16 * v)));
      seen[v] = _mm512_cmp_epi32_mask(at, first, _MM_CMPINT_GE) & _mm512_cmp_epi32_mask(at, end, _MM_CMPINT_LT);
      s[v] = _mm512_mask_mov_ps(least, seen[v], s[v]);
    }
    top = _mm512_max_ps(top, s[v]);
  }
  m[c] = _mm512_reduce_max_ps(top);
  top = _mm512_set1_ps(m[c]);
  __m512 sum = _mm512_setzero_ps();
  for (int64_t v = 0; v < vectors; v++) {
    __m512 w = pow2(_mm512_mul_ps(_mm512_sub_ps(s[v], top), log2e));
    if (!ALL) w = _mm512_maskz_mov_ps(seen[v], w);
    sum = _mm512_add_ps(sum, store16(p + c * ATTEND_KEYS + 16 * v, w));
  }
  z[c] = _mm512_reduce_add_ps(sum);
}
template <class S>
void weights_of(const float *scores, const AttendArgs &a, int64_t n, S *p, float *m, float *z) {
  for (int64_t c = 0; c < a.cols; c++)
    if (n == ATTEND_KEYS && a.first[c] <= a.from && a.end[c] >= a.to) weights_of_column<true>(scores, a, n, c, p, m, z);
    else weights_of_column<false>(scores, a, n, c, p, m, z);
}

#include "attend_few.h"

template <class S>
void attend(const S *q, const S *kpool, const S *vpool, const AttendArgs &a, char *scratch, float *m, float *z, float *acc) {
  const int64_t n = a.to - a.from, wide = AttendArgs::wide(a.dim), even = (n + 15) / 16 * 16;
  const Chunk<S> chunk(kpool, vpool, a);
  if (AttendArgs::few(a.cols, a.dim)) return attend_few(chunk, q, a, scratch, m, z, acc);
  S *panels = reinterpret_cast<S *>(scratch), *p = panels + wide * ATTEND_KEYS;
  float *scores = reinterpret_cast<float *>(p + ATTEND_COLS * ATTEND_KEYS);
  for (int64_t t = 0; t < even; t += 64) {
    chunk.prefetch(t + even, 64);  // their values, while the keys are multiplied
    keys_panel(chunk.rows + t, std::min<int64_t>(64, even - t), a.dim, panels);
    panel(q, a.dim, a.cols, panels, a.dim, scores + t * a.cols);
  }
  weights_of(scores, a, n, p, m, z);
  chunk.prefetch(2 * even, ATTEND_KEYS);
  values_panel(chunk.rows + even, n, even, a.dim, panels);
  for (int64_t d = 0; d < wide; d += 64) panel(p, ATTEND_KEYS, a.cols, panels + d * even, even, acc + d, nullptr, wide);
}
