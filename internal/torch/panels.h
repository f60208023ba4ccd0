// Products with a weight in oneDNN's layout for AVX-512: panels of 64 outputs, in each one
// group of inputs behind the other. A group is one input in float32, a pair in bfloat16.
// Included by a file with its own target, in a namespace of its own.
//
//   y[r·ldy + c] = Σ_k x[r][k]·w[k][c]   for all 64 c
//
// The sums of a row run over k in order, whatever the other rows are: what a row gives does
// not depend on how many there are.

// One group of inputs, and a row's numbers for it in every lane.
inline __m512 group_fma(__m512 sum, const float *w, __m512 x) { return _mm512_fmadd_ps(_mm512_loadu_ps(w), x, sum); }
inline __m512 spread(const float *x) { return _mm512_set1_ps(*x); }
#ifdef AGT_AVX512BF16
inline __m512 group_fma(__m512 sum, const bf16 *w, __m512 x) {
  __m512i bits = _mm512_loadu_si512(w);
  __m512i pair = _mm512_castps_si512(x);
  __m512bh a, b;
  static_assert(sizeof a == sizeof bits, "a vector of bfloat16");
  memcpy(&a, &bits, sizeof a);
  memcpy(&b, &pair, sizeof b);
  return _mm512_dpbf16_ps(sum, a, b);
}
#endif
inline __m512 spread(const bf16 *x) {
  int32_t pair;
  memcpy(&pair, x, 4);
  return _mm512_castsi512_ps(_mm512_set1_epi32(pair));
}

// The first n of 32 or 16 lanes.
inline __mmask32 first32(int64_t n) { return n >= 32 ? ~__mmask32(0) : n <= 0 ? 0 : (__mmask32(1) << n) - 1; }
inline __mmask16 first16(int64_t n) { return __mmask16(first32(std::min<int64_t>(n, 16))); }

#include "prefetch.h"

// k inputs of a panel for R rows; `begin` sets y, else it is added to.
template <int R, class S, class P>
void panel_rows(const S *x, int64_t ldx, const S *w, int64_t k, float *y, int64_t ldy, bool begin, P prefetch) {
  constexpr int64_t G = sizeof(float) / sizeof(S);  // inputs of a group
  __m512 sum[R][4];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 4; v++) sum[r][v] = begin ? _mm512_setzero_ps() : _mm512_loadu_ps(y + r * ldy + 16 * v);
  for (int64_t i = 0; i < k; i += G, w += 64 * G) {
    prefetch.take_step();
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
      __m512 xr = spread(x + r * ldx + i);
#pragma GCC unroll 4
      for (int v = 0; v < 4; v++) sum[r][v] = group_fma(sum[r][v], w + 16 * G * v, xr);
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 4; v++) _mm512_storeu_ps(y + r * ldy + 16 * v, sum[r][v]);
}

// f(first row, how many as a constant) for blocks of at most MOST rows, as alike as can be: their sums stay in registers.
template <int MOST, class F>
void row_blocks(int64_t rows, F f) {
  const int64_t blocks = (rows + MOST - 1) / MOST;
  for (int64_t b = 0; b < blocks; b++) {
    const int64_t from = rows * b / blocks;
    switch (rows * (b + 1) / blocks - from) {
      case 1: f(from, std::integral_constant<int, 1>()); break;
      case 2: f(from, std::integral_constant<int, std::min(2, MOST)>()); break;
      case 3: f(from, std::integral_constant<int, std::min(3, MOST)>()); break;
      case 4: f(from, std::integral_constant<int, std::min(4, MOST)>()); break;
      case 5: f(from, std::integral_constant<int, std::min(5, MOST)>()); break;
      case 6: f(from, std::integral_constant<int, std::min(6, MOST)>()); break;
      case 7: f(from, std::integral_constant<int, std::min(7, MOST)>()); break;
      case 8: f(from, std::integral_constant<int, std::min(8, MOST)>()); break;
      case 9: f(from, std::integral_constant<int, std::min(9, MOST)>()); break;
      case 10: f(from, std::integral_constant<int, std::min(10, MOST)>()); break;
      case 11: f(from, std::integral_constant<int, std::min(11, MOST)>()); break;
      case 12: f(from, std::integral_constant<int, std::min(12, MOST)>()); break;
    }
  }
}

#include "panels_wide.h"

// next is the panel that this thread multiplies next; null: none.
template <class S>
void panel(const S *x, int64_t ldx, int64_t rows, const S *w, int64_t k, float *y, const void *next = nullptr, int64_t ldy = 64) {
#ifndef AGT_AVX512BF16
  if constexpr (sizeof(S) == sizeof(bf16)) return panel_wide(x, ldx, rows, w, k, y, next, ldy);
  else
#endif
  {
    constexpr int64_t G = sizeof(float) / sizeof(S), MOST = 6;
    const int64_t passes = (rows + MOST - 1) / MOST, groups = piece_of(passes), piece = groups * G;
    int64_t depth;
    for (int64_t from = 0; from < k; from += depth) {
      // In one pass all but the last piece are one.
      depth = passes == 1 && k - from >= piece + G ? (k - from - piece) / G * G : std::min(piece, k - from);
      const void *after = from + piece < k ? w + (from + piece) * 64 : next ? next : w;
      int64_t pass = 0;
      lines_of<GROUP>(passes, [&](auto lines) {
        // AMD's processors, which have these products, prefetch enough for one pass by themselves.
        constexpr int LINES = G == 2 && lines.value == 4 ? 0 : lines.value;
        row_blocks<MOST>(rows, [&](int64_t r, auto n) {
          panel_rows<n.value, S>(x + r * ldx + from, ldx, w + from * 64, depth, y + r * ldy, ldy, from == 0,
                                 Prefetch<LINES>(after, pass++, passes, groups, GROUP));
        });
      });
    }
  }
}

// The same of up to 64 rows of a plain weight [n, k]: those of MoE experts, which are in no panels.
// A row's numbers and a weight's are multiplied lane by lane, and the lanes are added up at the end.

// 64 bytes, or what is left of them and zeros.
inline __m512 lanes_of(const float *p) { return _mm512_loadu_ps(p); }
inline __m512 lanes_of(const float *p, int64_t left) { return _mm512_maskz_loadu_ps(__mmask16((1u << left) - 1), p); }
inline __m512 lanes_of(const bf16 *p) { return _mm512_loadu_ps(p); }
inline __m512 lanes_of(const bf16 *p, int64_t left) { return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(__mmask32((1u << left) - 1), p)); }
inline __m512 lanes_fma(__m512 sum, __m512 w, __m512 x, const float *) { return _mm512_fmadd_ps(w, x, sum); }
inline __m512 lanes_fma(__m512 sum, __m512 w, __m512 x, const bf16 *) {
#ifdef AGT_AVX512BF16
  __m512bh a, b;
  memcpy(&a, &w, sizeof a);
  memcpy(&b, &x, sizeof b);
  return _mm512_dpbf16_ps(sum, a, b);
#else
  return _mm512_fmadd_ps(second_of(w), second_of(x), _mm512_fmadd_ps(first_of(w), first_of(x), sum));
#endif
}

// The sums of the lanes of four vectors.
inline __m128 sums_of(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
  const __m512 s = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// N rows of a weight, 1 or 4. The next N are on their way meanwhile: each row is a stream of its own,
// too short for the processor to see it coming.
template <int R, int N, class S>
void dots_tile(const S *x, int64_t ldx, const S *w, int64_t k, float *y) {
  constexpr int64_t WIDE = 64 / sizeof(S);
  __m512 sum[R][N];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < N; c++) sum[r][c] = _mm512_setzero_ps();
  auto add = [&](int64_t i, auto... left) {
    __m512 wc[N];
#pragma GCC unroll 4
    for (int c = 0; c < N; c++) {
      wc[c] = lanes_of(w + c * k + i, left...);
      _mm_prefetch(reinterpret_cast<const char *>(w + (c + N) * k + i), _MM_HINT_T0);
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
      const __m512 xr = lanes_of(x + r * ldx + i, left...);
#pragma GCC unroll 4
      for (int c = 0; c < N; c++) sum[r][c] = lanes_fma(sum[r][c], wc[c], xr, w);
    }
  };
  int64_t i = 0;
  for (; i + WIDE <= k; i += WIDE) add(i);
  if (i < k) add(i, k - i);
  for (int r = 0; r < R; r++) {
    if constexpr (N == 4) _mm_storeu_ps(y + r * 64, sums_of(sum[r][0], sum[r][1], sum[r][2], sum[r][3]));
    else y[r * 64] = _mm512_reduce_add_ps(sum[r][0]);
  }
}

template <int R, class S>
void dots_rows(const S *x, int64_t ldx, const S *w, int64_t n, int64_t k, float *y) {
  int64_t c = 0;
  for (; c + 4 <= n; c += 4) dots_tile<R, 4, S>(x, ldx, w + c * k, k, y + c);
  for (; c < n; c++) dots_tile<R, 1, S>(x, ldx, w + c * k, k, y + c);
}

template <class S>
void dots(const S *x, int64_t ldx, int64_t rows, const S *w, int64_t n, int64_t k, float *y) {
  row_blocks<6>(rows, [&](int64_t from, auto m) { dots_rows<m.value, S>(x + from * ldx, ldx, w, n, k, y + from * 64); });
}
