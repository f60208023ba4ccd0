// Attention of few columns: reading keys and values is what takes time, so they are read once, for all
// heads, in the order in which they lie in the cache, and go into no panels. 16 keys at a time become
// columns in registers; values are added up row by row. The order of all sums is that of the panels.
// Included by attend.h.

#include "attend_chunk.h"

// Four dwords of 16 rows, as columns.
inline void columns4(const char *const rows[16], int64_t at, __m512 to[4]) {
  __m512i v[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    auto four = [&](int row) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(rows[row] + at)); };
    v[i] = _mm512_castsi128_si512(four(i));
    v[i] = _mm512_mask_broadcast_i32x4(v[i], 0x00f0, four(4 + i));
    v[i] = _mm512_mask_broadcast_i32x4(v[i], 0x0f00, four(8 + i));
    v[i] = _mm512_mask_broadcast_i32x4(v[i], 0xf000, four(12 + i));
  }
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  to[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi64(a, c));
  to[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi64(a, c));
  to[2] = _mm512_castsi512_ps(_mm512_unpacklo_epi64(b, d));
  to[3] = _mm512_castsi512_ps(_mm512_unpackhi_epi64(b, d));
}

// The scores of 16 keys: scores[64·c + key]. Of the numbers from..to-1 of a head; from 0 on they are set, else added to.
template <int C, class S>
void score16(const S *const *keys, int64_t at, const S *q, int64_t dim, int64_t from, int64_t to, float *scores) {
  constexpr int64_t G = sizeof(float) / sizeof(S);
  const char *rows[16];
  for (int i = 0; i < 16; i++) rows[i] = reinterpret_cast<const char *>(keys[i] + at);
  __m512 sum[C];
  for (int c = 0; c < C; c++) sum[c] = from == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(scores + 64 * c);
  for (int64_t d = from; d < to; d += 4 * G) {
    __m512 key[4];
    columns4(rows, d * int64_t(sizeof(S)), key);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 12
      for (int c = 0; c < C; c++) sum[c] = lanes_fma(sum[c], key[i], spread(q + c * dim + d + i * G), q);
  }
  for (int c = 0; c < C; c++) _mm512_storeu_ps(scores + 64 * c, sum[c]);
}

// 16·V numbers, of which the first n are there, of one value in float32, of a pair in turn in bfloat16.
template <int V>
inline void numbers(const float *const *rows, int64_t at, int64_t n, __m512 to[V]) {
#pragma GCC unroll 4
  for (int v = 0; v < V; v++) to[v] = _mm512_maskz_loadu_ps(first16(n - 16 * v), rows[0] + at + 16 * v);
}
template <int V>
inline void numbers(const bf16 *const *rows, int64_t at, int64_t n, __m512 to[V]) {
#pragma GCC unroll 2
  for (int v = 0; v < V; v += 2) {
    const __mmask32 mask = first32(n - 16 * v);
    __m512i pairs[2];
    interleave(rows[0] + at + 16 * v, rows[1] + at + 16 * v, mask, mask, pairs);
    to[v] = _mm512_castsi512_ps(pairs[0]);
    to[v + 1] = _mm512_castsi512_ps(pairs[1]);
  }
}

// acc [C, wide] += the weights p [C, ATTEND_KEYS] of 16 values times their numbers from..to-1; `begin` sets it.
template <int C, class S>
void add16(const S *const *values, int64_t at, const S *p, int64_t dim, int64_t from, int64_t to, float *acc, int64_t wide, bool begin) {
  constexpr int64_t G = sizeof(float) / sizeof(S);
  constexpr int V = C <= 6 ? 4 : 2;  // the sums stay in registers
  for (int64_t d = from; d < to; d += 16 * V) {
    __m512 sum[C][V];
    for (int c = 0; c < C; c++)
      for (int v = 0; v < V; v++) sum[c][v] = begin ? _mm512_setzero_ps() : _mm512_loadu_ps(acc + c * wide + d + 16 * v);
    for (int64_t t = 0; t < 16; t += G) {
      __m512 value[V];
      numbers<V>(values + t, at + d, dim - d, value);
#pragma GCC unroll 12
      for (int c = 0; c < C; c++) {
        const __m512 weight = spread(p + c * ATTEND_KEYS + t);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) sum[c][v] = lanes_fma(sum[c][v], value[v], weight, p);
      }
    }
    for (int c = 0; c < C; c++)
      for (int v = 0; v < V; v++) _mm512_storeu_ps(acc + c * wide + d + 16 * v, sum[c][v]);
  }
}

template <int C, class S>
void attend_few_of(const Chunk<S> &chunk, const S *q, const AttendArgs &a, char *scratch, float *m, float *z, float *acc) {
  constexpr int64_t PIECE = 256 / sizeof(S);  // numbers of a head between two prefetches
  const int64_t n = a.to - a.from, wide = AttendArgs::wide(a.dim), even = (n + 15) / 16 * 16;
  S *p = reinterpret_cast<S *>(scratch);
  float *scores = reinterpret_cast<float *>(p + a.heads * C * ATTEND_KEYS);  // [heads][ATTEND_KEYS/64][C][64]
  // f(head, from, to) for the pieces of each head. Meanwhile 16 rows are fetched: those that are at most
  // 16 KB behind `first`, but at least 16 rows.
  const int64_t far = std::max<int64_t>(1, (1 << 10) / chunk.bytes) * 16;
  auto each = [&](int64_t first, int64_t numbers, auto f) {
    const int64_t pieces = (numbers + PIECE - 1) / PIECE, all = a.heads * pieces;
    for (int64_t h = 0, i = 0; h < a.heads; h++)
      for (int64_t d = 0; d < numbers; d += PIECE, i++) {
        chunk.prefetch(first + far + 16 * i / all, 16 * (i + 1) / all - 16 * i / all);
        f(h, d, std::min(d + PIECE, numbers));
      }
  };
  for (int64_t t = 0; t < even; t += 16)
    each(t, a.dim, [&](int64_t h, int64_t from, int64_t to) {
      score16<C>(chunk.rows + t, h * a.dim, q + h * C * a.dim, a.dim, from, to, scores + h * C * ATTEND_KEYS + t / 64 * C * 64 + t % 64);
    });
  for (int64_t h = 0; h < a.heads; h++) weights_of(scores + h * C * ATTEND_KEYS, a, n, p + h * C * ATTEND_KEYS, m + h * C, z + h * C);
  for (int64_t t = 0; t < even; t += 16)
    each(even + t, wide, [&](int64_t h, int64_t from, int64_t to) {
      add16<C>(chunk.rows + even + t, h * a.dim, p + h * C * ATTEND_KEYS + t, a.dim, from, to, acc + h * C * wide, wide, t == 0);
    });
}

template <class S>
void attend_few(const Chunk<S> &chunk, const S *q, const AttendArgs &a, char *scratch, float *m, float *z, float *acc) {
  auto of = [&](auto cols) { attend_few_of<cols.value>(chunk, q, a, scratch, m, z, acc); };
  switch (a.cols) {
    case 1: return of(std::integral_constant<int, 1>());
    case 2: return of(std::integral_constant<int, 2>());
    case 3: return of(std::integral_constant<int, 3>());
    case 4: return of(std::integral_constant<int, 4>());
    case 5: return of(std::integral_constant<int, 5>());
    case 6: return of(std::integral_constant<int, 6>());
    case 7: return of(std::integral_constant<int, 7>());
    case 8: return of(std::integral_constant<int, 8>());
    case 9: return of(std::integral_constant<int, 9>());
    case 10: return of(std::integral_constant<int, 10>());
    case 11: return of(std::integral_constant<int, 11>());
    case 12: return of(std::integral_constant<int, 12>());
  }
}
