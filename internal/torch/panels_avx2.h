// The products of panels.h by AVX2: vectors of 8 float32, and bfloat16 widened to them. The sums
// run over k in order here, too. Included by row_kernels.h, in a namespace of its own.

// 8 numbers of float32 or bfloat16.
inline __m256 wide8(const float *p) { return _mm256_loadu_ps(p); }
inline __m256 wide8(const bf16 *p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))), 16));
}
inline float wide1(float x) { return x; }
inline float wide1(bf16 x) {
  const uint32_t bits = uint32_t(x.bits) << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

// One input, or the first or second of a pair, of V times 8 outputs.
template <int V>
inline void outputs_of(const float *w, int, __m256 to[V]) {
  for (int v = 0; v < V; v++) to[v] = _mm256_loadu_ps(w + 8 * v);
}
template <int V>
inline void outputs_of(const bf16 *w, int second, __m256 to[V]) {
  for (int v = 0; v < V; v++) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(w + 16 * v));
    to[v] = _mm256_castsi256_ps(second ? _mm256_and_si256(pairs, _mm256_set1_epi32(int32_t(0xffff0000))) : _mm256_slli_epi32(pairs, 16));
  }
}

#include "prefetch.h"

// V times 8 outputs of a panel, which begins at w, for R rows of float32; `begin` sets y, else it is added to.
template <int R, int V, class S, class P>
void panel_piece(const float *x, int64_t ldx, const S *w, int64_t k, float *y, int64_t ldy, bool begin, P prefetch) {
  constexpr int G = sizeof(float) / sizeof(S);
  __m256 sum[R][V];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < V; v++) sum[r][v] = begin ? _mm256_setzero_ps() : _mm256_loadu_ps(y + r * ldy + 8 * v);
  for (int64_t i = 0; i < k; i += G, w += 64 * G) {
    prefetch.take_step();
#pragma GCC unroll 2
    for (int g = 0; g < G; g++) {
      __m256 of[V];
      outputs_of<V>(w, g, of);
#pragma GCC unroll 6
      for (int r = 0; r < R; r++) {
        const __m256 xr = _mm256_broadcast_ss(x + r * ldx + i + g);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) sum[r][v] = _mm256_fmadd_ps(of[v], xr, sum[r][v]);
      }
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < V; v++) _mm256_storeu_ps(y + r * ldy + 8 * v, sum[r][v]);
}

// As many vectors of outputs at a time as leave all sums of so many rows in registers.
constexpr int vectors_of(int64_t rows) { return rows == 1 ? 8 : rows <= 3 ? 4 : 2; }
constexpr int64_t passes_of(int64_t rows) { return 8 / vectors_of(rows); }

// The first of the passes over these rows is pass `pass` of so many over the piece.
template <int R, class S>
void panel_rows(const float *x, int64_t ldx, const S *w, int64_t k, float *y, int64_t ldy, bool begin, const void *after,
                int64_t pass, int64_t passes) {
  constexpr int V = vectors_of(R);
  lines_of<GROUP>(passes, [&](auto lines) {
    for (int c = 0; c < 64; c += 8 * V)
      panel_piece<R, V, S>(x, ldx, w + c * int64_t(sizeof(float) / sizeof(S)), k, y + c, ldy, begin,
                           Prefetch<lines.value>(after, pass++, passes, piece_of(passes), GROUP));
  });
}

// f(first row, how many as a constant) for blocks of at most MOST rows.
template <int MOST, class F>
void row_blocks(int64_t rows, F f) {
  for (int64_t from = 0; from < rows; from += MOST) switch (std::min<int64_t>(MOST, rows - from)) {
      case 1: f(from, std::integral_constant<int, 1>()); break;
      case 2: f(from, std::integral_constant<int, std::min(2, MOST)>()); break;
      case 3: f(from, std::integral_constant<int, std::min(3, MOST)>()); break;
      case 4: f(from, std::integral_constant<int, std::min(4, MOST)>()); break;
      case 5: f(from, std::integral_constant<int, std::min(5, MOST)>()); break;
      case 6: f(from, std::integral_constant<int, std::min(6, MOST)>()); break;
    }
}

// n rows of k numbers as float32, in `wide`, ld apart.
inline void as_float(const bf16 *x, int64_t ldx, int64_t n, int64_t k, float *wide, int64_t ld) {
  for (int64_t r = 0; r < n; r++) {
    int64_t i = 0;
    for (; i + 8 <= k; i += 8) _mm256_storeu_ps(wide + r * ld + i, wide8(x + r * ldx + i));
    for (; i < k; i++) wide[r * ld + i] = wide1(x[r * ldx + i]);
  }
}

template <class S>
void panel(const S *x, int64_t ldx, int64_t rows, const S *w, int64_t k, float *y, const S *next) {
  constexpr int64_t G = sizeof(float) / sizeof(S), DEPTH = PIECE * G, MOST = 6;
  const int64_t last = rows % MOST, passes = rows / MOST * passes_of(MOST) + (last ? passes_of(last) : 0), piece = piece_of(passes) * G;
  for (int64_t from = 0; from < k; from += piece) {
    const int64_t depth = std::min(piece, k - from);
    const void *after = from + depth < k ? w + (from + depth) * 64 : next ? next : w;
    int64_t pass = 0;
    row_blocks<MOST>(rows, [&](int64_t r, auto n) {
      const float *of = nullptr;
      int64_t ld = ldx;
      float wide[n.value * DEPTH];
      if constexpr (sizeof(S) == sizeof(float)) of = x + r * ldx + from;
      else {
        as_float(x + r * ldx + from, ldx, n.value, depth, wide, ld = DEPTH);
        of = wide;
      }
      panel_rows<n.value, S>(of, ld, w + from * 64, depth, y + r * 64, 64, from == 0, after, pass, passes);
      pass += passes_of(n.value);
    });
  }
}

// The sums of the lanes of four vectors.
inline __m128 sums_of(__m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

// y[r·ldy + c] = x[r]·w[c] of R rows of float32 and four rows of a plain weight.
template <int R, class S>
void dots_tile(const float *x, int64_t ldx, const S *const w[4], int64_t k, float *y, int64_t ldy) {
  __m256 sum[R][4];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < 4; c++) sum[r][c] = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) {
    __m256 of[4];
    for (int c = 0; c < 4; c++) of[c] = wide8(w[c] + i);
    for (int r = 0; r < R; r++) {
      const __m256 xr = _mm256_loadu_ps(x + r * ldx + i);
      for (int c = 0; c < 4; c++) sum[r][c] = _mm256_fmadd_ps(of[c], xr, sum[r][c]);
    }
  }
  for (int r = 0; r < R; r++) {
    float s[4];
    _mm_storeu_ps(s, sums_of(sum[r][0], sum[r][1], sum[r][2], sum[r][3]));
    for (int c = 0; c < 4; c++) {
      for (int64_t j = i; j < k; j++) s[c] += x[r * ldx + j] * wide1(w[c][j]);
      y[r * ldy + c] = s[c];
    }
  }
}

template <class S>
void dots(const S *x, int64_t ldx, int64_t rows, const S *w, int64_t n, int64_t k, float *y) {
  thread_local std::vector<float> wide;
  row_blocks<2>(rows, [&](int64_t from, auto m) {
    const float *xs;
    if constexpr (sizeof(S) == sizeof(float)) xs = x + from * ldx;
    else {
      wide.resize(size_t(m.value * k));
      as_float(x + from * ldx, ldx, m.value, k, wide.data(), k);
      xs = wide.data();
    }
    const int64_t ld = sizeof(S) == sizeof(float) ? ldx : k;
    for (int64_t c = 0; c < n; c += 4) {
      const S *of[4];
      for (int j = 0; j < 4; j++) of[j] = w + std::min(c + j, n - 1) * k;
      float four[2 * 4];
      dots_tile<m.value, S>(xs, ld, of, k, four, 4);
      for (int r = 0; r < m.value; r++) memcpy(y + (from + r) * 64 + c, four + 4 * r, size_t(std::min<int64_t>(4, n - c)) * sizeof(float));
    }
  });
}
