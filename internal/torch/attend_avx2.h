// Attention of new tokens to the cache by AVX2: each query's products with the keys, 8 numbers at a
// time, and the sums of the values in the order of the tokens. What a query gets of a chunk depends
// on the query and the chunk alone, as in attend.h. Included behind panels_avx2.h.

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
// their sum goes to z.
inline void weights_of(const AttendArgs &a, int64_t n, int64_t c, float *s, float *m, float *z) {
  const int64_t first = std::max<int64_t>(a.first[c] - a.from, 0), end = std::min<int64_t>(a.end[c] - a.from, n);
  const __m256i count = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i lo = _mm256_set1_epi32(int32_t(first) - 1), hi = _mm256_set1_epi32(int32_t(end));
  const __m256 least = _mm256_set1_ps(-1e30f), scale = _mm256_set1_ps(a.scale);
  auto seen = [&](int64_t t) {
    const __m256i at = _mm256_add_epi32(count, _mm256_set1_epi32(int32_t(t)));
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_cmpgt_epi32(at, lo), _mm256_cmpgt_epi32(hi, at)));
  };
  __m256 top = least;
  for (int64_t t = 0; t < n; t += 8) {
    const __m256 x = _mm256_blendv_ps(least, _mm256_mul_ps(_mm256_loadu_ps(s + t), scale), seen(t));
    _mm256_storeu_ps(s + t, x);
    top = _mm256_max_ps(top, x);
  }
  float lanes[8];
  _mm256_storeu_ps(lanes, top);
  *m = *std::max_element(lanes, lanes + 8);
  top = _mm256_set1_ps(*m);
  __m256 sum = _mm256_setzero_ps();
  for (int64_t t = 0; t < n; t += 8) {
    const __m256 w = _mm256_and_ps(seen(t), pow2(_mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(s + t), top), _mm256_set1_ps(LOG2E))));
    _mm256_storeu_ps(s + t, w);
    sum = _mm256_add_ps(sum, w);
  }
  const __m128 four = sums_of(sum, sum, sum, sum);
  *z = _mm_cvtss_f32(four);
}

// Values as pieces of 16 numbers of a head: [wide/16][ATTEND_KEYS][16].
template <class S>
void value_pieces(const S *const *rows, int64_t n, int64_t dim, int64_t offset, float *to) {
  for (int64_t d = 0; d < dim; d += 8)
    for (int64_t t = 0; t < n; t++) _mm256_storeu_ps(to + (d / 16 * ATTEND_KEYS + t) * 16 + d % 16, wide8(rows[t] + offset + d));
}

// acc[r·wide + v] = Σ_t p[r·ATTEND_KEYS + t]·values[t][v] for R columns and 16 numbers.
template <int R>
void values_tile(const float *p, const float *values, int64_t n, float *acc, int64_t wide) {
  __m256 sum[R][2];
  for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
  for (int64_t t = 0; t < n; t++) {
    const __m256 a = _mm256_loadu_ps(values + 16 * t), b = _mm256_loadu_ps(values + 16 * t + 8);
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
      const __m256 w = _mm256_broadcast_ss(p + r * ATTEND_KEYS + t);
      sum[r][0] = _mm256_fmadd_ps(a, w, sum[r][0]);
      sum[r][1] = _mm256_fmadd_ps(b, w, sum[r][1]);
    }
  }
  for (int r = 0; r < R; r++) {
    _mm256_storeu_ps(acc + r * wide, sum[r][0]);
    _mm256_storeu_ps(acc + r * wide + 8, sum[r][1]);
  }
}

// Rows of dim numbers as float32: where they are, or in `at`.
inline void float_rows(const float *const *rows, int64_t n, int64_t, int64_t offset, float *, const float **to) {
  for (int64_t t = 0; t < n; t++) to[t] = rows[t] + offset;
}
inline void float_rows(const bf16 *const *rows, int64_t n, int64_t dim, int64_t offset, float *at, const float **to) {
  for (int64_t t = 0; t < n; t++, at += dim) {
    for (int64_t d = 0; d < dim; d += 8) _mm256_storeu_ps(at + d, wide8(rows[t] + offset + d));
    to[t] = at;
  }
}

// Of one head, dim a multiple of 8.
template <class S>
void attend_head(const Chunk<S> &chunk, int64_t head, const S *q, const AttendArgs &a, char *scratch, float *m, float *z, float *acc) {
  const int64_t n = a.to - a.from, wide = AttendArgs::wide(a.dim), even = (n + 15) / 16 * 16;
  float *rows_at = reinterpret_cast<float *>(scratch), *queries = rows_at + ATTEND_KEYS * wide, *p = queries + ATTEND_COLS * wide;
  const float *rows[ATTEND_KEYS], *of[ATTEND_COLS];
  const S *from[ATTEND_COLS];
  for (int64_t c = 0; c < a.cols; c++) from[c] = q + c * a.dim;
  float_rows(from, a.cols, a.dim, 0, queries, of);
  // Each head fetches its share.
  const int64_t first = head * ATTEND_KEYS / a.heads, share = (head + 1) * ATTEND_KEYS / a.heads - first;
  chunk.prefetch(even + first, share);
  float_rows(chunk.rows, n, a.dim, head * a.dim, rows_at, rows);
  for (int64_t t = 0; t < n; t += 4) {
    const float *four[4];
    for (int i = 0; i < 4; i++) four[i] = rows[std::min(t + i, n - 1)];
    row_blocks<2>(a.cols, [&](int64_t c, auto r) {
      dots_tile<r.value, float>(of[c], a.dim, four, a.dim, p + c * ATTEND_KEYS + t, ATTEND_KEYS);
    });
  }
  for (int64_t c = 0; c < a.cols; c++) weights_of(a, n, c, p + c * ATTEND_KEYS, m + c, z + c);
  chunk.prefetch(2 * even + first, share);
  value_pieces(chunk.rows + even, n, a.dim, head * a.dim, rows_at);
  row_blocks<6>(a.cols, [&](int64_t c, auto r) {
    for (int64_t d = 0; d < a.dim; d += 16)
      values_tile<r.value>(p + c * ATTEND_KEYS, rows_at + d / 16 * ATTEND_KEYS * 16, n, acc + c * wide + d, wide);
    for (int i = 0; i < r.value; i++) std::fill(acc + (c + i) * wide + a.dim, acc + (c + i + 1) * wide, 0.f);
  });
}

template <class S>
void attend(const S *q, const S *kpool, const S *vpool, const AttendArgs &a, char *scratch, float *m, float *z, float *acc) {
  const Chunk<S> chunk(kpool, vpool, a);
  for (int64_t h = 0; h < a.heads; h++)
    attend_head(chunk, h, q + h * a.cols * a.dim, a, scratch, m + h * a.cols, z + h * a.cols, acc + h * a.cols * AttendArgs::wide(a.dim));
}
