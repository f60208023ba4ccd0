// Attention of new tokens to the cache, by the products of panels.h: keys are the outputs of
// one product, the numbers of a head those of the other. Included behind panels.h.
//
// A context is cut at the multiples of ATTEND_KEYS. What a query gets of one such chunk depends
// on the query and the chunk alone, and chunks are added up in order. So whether a prompt is
// computed in one piece or in many, by how many threads, and beside which others, its numbers
// are the same to the bit.

// exp for arguments of at most 0, by exp_'s polynomial; 0 below the smallest normal number.
inline __m512 exp16(__m512 x) {
  const __mmask16 none = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.3f), _CMP_LT_OQ);
  x = _mm512_max_ps(x, _mm512_set1_ps(-87.3f));
  __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504088896341f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
  p = _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r), _mm512_set1_ps(1.f));
  return _mm512_maskz_scalef_ps(_mm512_knot(none), p, n);
}
inline float exp1(float x) { return _mm512_cvtss_f32(exp16(_mm512_set1_ps(x))); }

#include "transpose.h"

// 64 keys, of which the first n are there, as a panel: dwords [dim·size/4][64].
template <class S>
void keys_panel(const S *const *rows, int64_t n, int64_t dim, S *panel) {
  const int64_t words = dim * int64_t(sizeof(S)) / 4;
  int32_t *to = reinterpret_cast<int32_t *>(panel);
  for (int64_t t = 0; t < 64; t += 16) {
    for (int64_t d = 0; d < words; d += 16) {
      const int64_t there = std::min<int64_t>(16, words - d);
      const __mmask16 mask = __mmask16((1u << there) - 1);
      __m512i r[16];
      for (int64_t i = 0; i < 16; i++)
        r[i] = t + i < n ? _mm512_maskz_loadu_epi32(mask, reinterpret_cast<const int32_t *>(rows[t + i]) + d) : _mm512_setzero_si512();
      transpose16(r);
      for (int64_t i = 0; i < there; i++) _mm512_storeu_si512(to + (d + i) * 64 + t, r[i]);
    }
  }
}

// Values of `even` tokens, of which the first n are there, as panels of 64 of a head's numbers.
inline void values_panel(const float *const *rows, int64_t n, int64_t even, int64_t dim, float *panel) {
  for (int64_t d = 0; d < dim; d += 64, panel += 64 * even)
    for (int64_t t = 0; t < even; t++)
      for (int64_t v = 0; v < 64; v += 16) {
        const int64_t there = std::max<int64_t>(0, std::min<int64_t>(16, dim - d - v));
        const __mmask16 mask = __mmask16(t < n ? (1u << there) - 1 : 0);
        _mm512_storeu_ps(panel + t * 64 + v, _mm512_maskz_loadu_ps(mask, rows[t < n ? t : 0] + d + v));
      }
}
inline void values_panel(const bf16 *const *rows, int64_t n, int64_t even, int64_t dim, bf16 *panel) {
  __m512i low, high;  // the words of two rows in turn
  uint16_t order[64];
  for (uint16_t i = 0; i < 32; i++) {
    order[2 * i] = i;
    order[2 * i + 1] = uint16_t(32 + i);
  }
  memcpy(&low, order, 64);
  memcpy(&high, order + 32, 64);
  for (int64_t d = 0; d < dim; d += 64, panel += 64 * even)
    for (int64_t t = 0; t < even; t += 2)
      for (int64_t v = 0; v < 64; v += 32) {
        const int64_t there = std::max<int64_t>(0, std::min<int64_t>(32, dim - d - v));
        const __mmask32 mask = there == 32 ? ~__mmask32(0) : (__mmask32(1) << there) - 1;
        __m512i a = _mm512_maskz_loadu_epi16(t < n ? mask : 0, rows[t < n ? t : 0] + d + v);
        __m512i b = _mm512_maskz_loadu_epi16(t + 1 < n ? mask : 0, rows[t + 1 < n ? t + 1 : 0] + d + v);
        bf16 *to = panel + t * 64 + 2 * v;
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, low, b));
        _mm512_storeu_si512(to + 32, _mm512_permutex2var_epi16(a, high, b));
      }
}

// p is stored; what is stored is returned.
inline __m512 store16(float *to, __m512 p) {
  _mm512_storeu_ps(to, p);
  return p;
}
#ifdef AGT_AVX512BF16
inline __m512 store16(bf16 *to, __m512 p) {
  __m256bh h = _mm512_cvtneps_pbh(p);
  __m256i bits;
  memcpy(&bits, &h, sizeof bits);
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), bits);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
#endif

// The scores [2][cols][64] of n keys become weights p [cols, ATTEND_KEYS] relative to each
// column's largest, which goes to m; their sum goes to z.
template <class S>
void weights_of(const float *scores, const AttendArgs &a, int64_t n, S *p, float *m, float *z) {
  const __m512 scale = _mm512_set1_ps(a.scale), least = _mm512_set1_ps(-1e30f);
  const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const int64_t vectors = (n + 15) / 16;
  for (int64_t c = 0; c < a.cols; c++) {
    const __m512i first = _mm512_set1_epi32(int32_t(std::max<int64_t>(a.first[c] - a.from, 0)));
    const __m512i end = _mm512_set1_epi32(int32_t(std::min<int64_t>(a.end[c] - a.from, n)));
    __m512 s[ATTEND_KEYS / 16], top = least;
    __mmask16 seen[ATTEND_KEYS / 16];
    for (int64_t v = 0; v < vectors; v++) {
      const __m512i at = _mm512_add_epi32(count, _mm512_set1_epi32(int32_t(16 * v)));
      seen[v] = _mm512_cmp_epi32_mask(at, first, _MM_CMPINT_GE) & _mm512_cmp_epi32_mask(at, end, _MM_CMPINT_LT);
      s[v] = _mm512_mask_mul_ps(least, seen[v], _mm512_loadu_ps(scores + (v / 4 * a.cols + c) * 64 + v % 4 * 16), scale);
      top = _mm512_max_ps(top, s[v]);
    }
    m[c] = _mm512_reduce_max_ps(top);
    top = _mm512_set1_ps(m[c]);
    __m512 sum = _mm512_setzero_ps();
    for (int64_t v = 0; v < vectors; v++)
      sum = _mm512_add_ps(sum, store16(p + c * ATTEND_KEYS + 16 * v, _mm512_maskz_mov_ps(seen[v], exp16(_mm512_sub_ps(s[v], top)))));
    z[c] = _mm512_reduce_add_ps(sum);
  }
}

template <class S>
void attend(const S *q, const S *kpool, const S *vpool, const AttendArgs &a, char *scratch, float *m, float *z, float *acc) {
  const int64_t n = a.to - a.from, wide = (a.dim + 63) / 64 * 64, even = (n + 15) / 16 * 16;
  const S *rows[ATTEND_KEYS];
  auto find = [&](const S *pool) {
    for (int64_t t = 0; t < n; t++) {
      const int64_t at = a.from + t;
      rows[t] = pool + ((int64_t(a.blocks[at / a.block_size]) * a.block_size + at % a.block_size) * a.kv_heads + a.head) * a.dim;
    }
  };
  S *panels = reinterpret_cast<S *>(scratch), *p = panels + wide * ATTEND_KEYS;
  float *scores = reinterpret_cast<float *>(p + ATTEND_COLS * ATTEND_KEYS);
  find(kpool);
  for (int64_t t = 0; t < n; t += 64) {
    keys_panel(rows + t, n - t, a.dim, panels);
    panel(q, a.dim, a.cols, panels, a.dim, scores + t * a.cols);
  }
  weights_of(scores, a, n, p, m, z);
  find(vpool);
  values_panel(rows, n, even, a.dim, panels);
  for (int64_t d = 0; d < wide; d += 64) panel(p, ATTEND_KEYS, a.cols, panels + d * even, even, acc + d, wide);
}
