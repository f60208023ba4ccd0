// The products of panels.h in bfloat16, whose numbers are widened to float32: for processors with AVX-512
// that lack instructions for bfloat16, and for Intel's, which take as long for one of those as for four of
// float32. The sums run over k in order here, too. Included by panels.h.

// The first numbers of 16 pairs, and the second.
inline __m512 first_of(__m512 pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16)); }
inline __m512 second_of(__m512 pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(int32_t(0xffff0000))));
}

// 16·V outputs of a panel, which begins at w, for R rows of float32; `begin` sets y, else it is added to.
template <int R, int V, class P>
void wide_piece(const float *x, int64_t ldx, const bf16 *w, int64_t k, float *y, int64_t ldy, bool begin, P prefetch) {
  __m512 sum[R][V];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < V; v++) sum[r][v] = begin ? _mm512_setzero_ps() : _mm512_loadu_ps(y + r * ldy + 16 * v);
  for (int64_t i = 0; i < k; i += 2, w += 128) {
    prefetch.take_step();
    __m512 a[V], b[V];  // of the first input of a pair, and of the second
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) {
      const __m512 pairs = _mm512_loadu_ps(w + 32 * v);
      a[v] = first_of(pairs);
      b[v] = second_of(pairs);
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) {
      const __m512 xa = _mm512_set1_ps(x[r * ldx + i]), xb = _mm512_set1_ps(x[r * ldx + i + 1]);
#pragma GCC unroll 4
      for (int v = 0; v < V; v++) sum[r][v] = _mm512_fmadd_ps(b[v], xb, _mm512_fmadd_ps(a[v], xa, sum[r][v]));
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < V; v++) _mm512_storeu_ps(y + r * ldy + 16 * v, sum[r][v]);
}

// As many outputs at a time as leave all sums of so many rows in registers.
constexpr int vectors_of(int64_t rows) { return rows <= 5 ? 4 : 2; }
constexpr int64_t passes_of(int64_t rows) { return 4 / vectors_of(rows); }

// The first of the passes over these rows is pass `pass` of so many over the piece.
template <int R>
void wide_rows(const bf16 *x, int64_t ldx, const bf16 *w, int64_t k, float *y, int64_t ldy, bool begin, const void *after,
               int64_t pass, int64_t passes) {
  constexpr int64_t DEPTH = 2 * PIECE;
  constexpr int V = vectors_of(R);
  float wide[R * DEPTH];
  for (int r = 0; r < R; r++)
    for (int64_t i = 0; i < k; i += 16) {
      const __mmask16 mask = first16(k - i);
      const __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, x + r * ldx + i));
      _mm512_storeu_ps(wide + r * DEPTH + i, _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16)));
    }
  lines_of<GROUP>(passes, [&](auto lines) {
    for (int c = 0; c < 64; c += 16 * V)
      wide_piece<R, V>(wide, DEPTH, w + 2 * c, k, y + c, ldy, begin, Prefetch<lines.value>(after, pass++, passes, piece_of(passes), GROUP));
  });
}

inline void panel_wide(const bf16 *x, int64_t ldx, int64_t rows, const bf16 *w, int64_t k, float *y, const void *next, int64_t ldy) {
  constexpr int64_t MOST = 12;
  // Blocks are of at least six rows where there is more than one.
  const int64_t passes = (rows + MOST - 1) / MOST * passes_of(rows), piece = 2 * piece_of(passes);
  for (int64_t from = 0; from < k; from += piece) {
    const int64_t depth = std::min(piece, k - from);
    const void *after = from + depth < k ? w + (from + depth) * 64 : next ? next : w;
    int64_t pass = 0;
    row_blocks<MOST>(rows, [&](int64_t r, auto n) {
      wide_rows<n.value>(x + r * ldx + from, ldx, w + from * 64, depth, y + r * ldy, ldy, from == 0, after, pass, passes);
      pass += passes_of(n.value);
    });
  }
}
