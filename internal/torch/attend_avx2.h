// Attention of new tokens to the cache by AVX2: 16 keys at a time become columns, and the values are pieces of
// 16 numbers of a head. Sums run over the numbers of a head, and over the tokens, in order. What a query gets
// of a chunk depends on the query and the chunk alone, as in attend.h. Included behind panels_avx2.h.

#include "attend_chunk.h"
#include "pow2.h"

// 2^x for x of at most 0, as attend.h has it.
inline __m256 pow2(__m256 x) {
  const __m256 normal = _mm256_cmp_ps(x, _mm256_set1_ps(-126.f), _CMP_GE_OQ);
  x = _mm256_max_ps(x, _mm256_set1_ps(-126.f));
  const __m256 n = _mm256_floor_ps(x), r = _mm256_sub_ps(x, n);
  __m256 p = _mm256_set1_ps(POW2[0]);
  for (int i = 1; i < 6; i++) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(POW2[i]));
  const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_and_ps(normal, _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
}
inline float exp1(float x) { return _mm256_cvtss_f32(pow2(_mm256_set1_ps(x * LOG2E))); }

// The scores s [ATTEND_KEYS] of one column become its weights relative to the largest, which goes to m;
// their sum goes to z. ALL: the column sees all n keys, a multiple of 8.
template <bool ALL>
void weights_of_column(const AttendArgs &a, int64_t n, int64_t c, float *s, float *m, float *z) {
  const int64_t first = std::max<int64_t>(a.first[c] - a.from, 0), end = std::min<int64_t>(a.end[c] - a.from, n);
  const __m256i count = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i lo = _mm256_set1_epi32(int32_t(first) - 1), hi = _mm256_set1_epi32(int32_t(end));
  const __m256 least = _mm256_set1_ps(-1e30f), scale = _mm256_set1_ps(a.scale), log2e = _mm256_set1_ps(LOG2E);
  auto seen = [&](int64_t t) {
    const __m256i at = _mm256_add_epi32(count, _mm256_set1_epi32(int32_t(t)));
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_cmpgt_epi32(at, lo), _mm256_cmpgt_epi32(hi, at)));
  };
  __m256 top = least;
  for (int64_t t = 0; t < n; t += 8) {
    __m256 x = _mm256_mul_ps(_mm256_loadu_ps(s + t), scale);
    if (!ALL) x = _mm256_blendv_ps(least, x, seen(t));
    _mm256_storeu_ps(s + t, x);
    top = _mm256_max_ps(top, x);
  }
  float lanes[8];
  _mm256_storeu_ps(lanes, top);
  *m = *std::max_element(lanes, lanes + 8);
  top = _mm256_set1_ps(*m);
  __m256 sum = _mm256_setzero_ps();
  for (int64_t t = 0; t < n; t += 8) {
    __m256 w = pow2(_mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(s + t), top), log2e));
    if (!ALL) w = _mm256_and_ps(seen(t), w);
    _mm256_storeu_ps(s + t, w);
    sum = _mm256_add_ps(sum, w);
  }
  const __m128 four = sums_of(sum, sum, sum, sum);
  *z = _mm_cvtss_f32(four);
}
inline void weights_of(const AttendArgs &a, int64_t n, int64_t c, float *s, float *m, float *z) {
  if (n == ATTEND_KEYS && a.first[c] <= a.from && a.end[c] >= a.to) weights_of_column<true>(a, n, c, s, m, z);
  else weights_of_column<false>(a, n, c, s, m, z);
}

// Rows r[i] of 8 numbers become columns.
inline void transpose8(__m256 r[8]) {
  __m256 t[8];
  for (int i = 0; i < 8; i += 4) {
    const __m256 a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
    const __m256 c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
    t[i] = _mm256_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  for (int i = 0; i < 4; i++) {
    r[i] = _mm256_permute2f128_ps(t[i], t[4 + i], 0x20);
    r[4 + i] = _mm256_permute2f128_ps(t[i], t[4 + i], 0x31);
  }
}

// 16 keys as columns: [dim][16].
template <class S>
void key_columns(const S *const *rows, int64_t dim, int64_t offset, float *to) {
  for (int64_t d = 0; d < dim; d += 8)
    for (int t = 0; t < 16; t += 8) {
      __m256 r[8];
      for (int i = 0; i < 8; i++) r[i] = wide8(rows[t + i] + offset + d);
      transpose8(r);
      for (int i = 0; i < 8; i++) _mm256_storeu_ps(to + (d + i) * 16 + t, r[i]);
    }
}

// Values as pieces of 16 numbers of a head: [wide/16][ATTEND_KEYS][16].
template <class S>
void value_pieces(const S *const *rows, int64_t n, int64_t dim, int64_t offset, float *to) {
  for (int64_t d = 0; d < dim; d += 8)
    for (int64_t t = 0; t < n; t++) _mm256_storeu_ps(to + (d / 16 * ATTEND_KEYS + t) * 16 + d % 16, wide8(rows[t] + offset + d));
}

// y[r·ldy + v] = Σ_i x[r·ldx + i]·w[i][v] for R rows and 16 columns.
template <int R>
void product_tile(const float *x, int64_t ldx, const float *w, int64_t n, float *y, int64_t ldy) {
  __m256 sum[R][2];
  for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
  for (int64_t i = 0; i < n; i++) {
    const __m256 a = _mm256_loadu_ps(w + 16 * i), b = _mm256_loadu_ps(w + 16 * i + 8);
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
      const __m256 xr = _mm256_broadcast_ss(x + r * ldx + i);
      sum[r][0] = _mm256_fmadd_ps(a, xr, sum[r][0]);
      sum[r][1] = _mm256_fmadd_ps(b, xr, sum[r][1]);
    }
  }
  for (int r = 0; r < R; r++) {
    _mm256_storeu_ps(y + r * ldy, sum[r][0]);
    _mm256_storeu_ps(y + r * ldy + 8, sum[r][1]);
  }
}

// Numbers as float32: where they are, or in `to`.
inline const float *floats(const float *x, int64_t, float *) { return x; }
inline const float *floats(const bf16 *x, int64_t n, float *to) {
  as_float(x, n, 1, n, to, n);
  return to;
}

// Of one head, dim a multiple of 8.
template <class S>
void attend_head(const Chunk<S> &chunk, int64_t head, const S *q, const AttendArgs &a, char *scratch, float *m, float *z, float *acc) {
  const int64_t n = a.to - a.from, wide = AttendArgs::wide(a.dim), even = (n + 15) / 16 * 16;
  float *columns = reinterpret_cast<float *>(scratch), *p = columns + (ATTEND_KEYS + ATTEND_COLS) * wide;
  const float *queries = floats(q, a.cols * a.dim, columns + ATTEND_KEYS * wide);
  // Each head fetches its share.
  const int64_t first = head * ATTEND_KEYS / a.heads, share = (head + 1) * ATTEND_KEYS / a.heads - first;
  chunk.prefetch(even + first, share);
  for (int64_t t = 0; t < even; t += 16) {
    key_columns(chunk.rows + t, a.dim, head * a.dim, columns);
    row_blocks<6>(a.cols, [&](int64_t c, auto r) {
      product_tile<r.value>(queries + c * a.dim, a.dim, columns, a.dim, p + c * ATTEND_KEYS + t, ATTEND_KEYS);
    });
  }
  for (int64_t c = 0; c < a.cols; c++) weights_of(a, n, c, p + c * ATTEND_KEYS, m + c, z + c);
  chunk.prefetch(2 * even + first, share);
  value_pieces(chunk.rows + even, n, a.dim, head * a.dim, columns);
  row_blocks<6>(a.cols, [&](int64_t c, auto r) {
    for (int64_t d = 0; d < a.dim; d += 16)
      product_tile<r.value>(p + c * ATTEND_KEYS, ATTEND_KEYS, columns + d / 16 * ATTEND_KEYS * 16, n, acc + c * wide + d, wide);
    for (int i = 0; i < r.value; i++) std::fill(acc + (c + i) * wide + a.dim, acc + (c + i + 1) * wide, 0.f);
  });
}

template <class S>
void attend(const S *q, const S *kpool, const S *vpool, const AttendArgs &a, char *scratch, float *m, float *z, float *acc) {
  const Chunk<S> chunk(kpool, vpool, a);
  for (int64_t h = 0; h < a.heads; h++)
    attend_head(chunk, h, q + h * a.cols * a.dim, a, scratch, m + h * a.cols, z + h * a.cols, acc + h * a.cols * AttendArgs::wide(a.dim));
}
