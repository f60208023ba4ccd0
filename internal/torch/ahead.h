// Included by panels.h and panels_avx2.h.

// A panel is multiplied in pieces, which stay in the first cache for all rows. Meanwhile the next piece is
// fetched: each pass over a piece fetches its share, so that the memory is read while the rows are
// multiplied, whatever their number. Processors fetch too little by themselves, and all of it in the first pass.
constexpr int64_t PIECE = 64;  // groups of inputs at most: 16 KB
inline int64_t piece_of(int64_t passes) { return passes < 4 ? PIECE / 2 : PIECE; }  // what is fetched soon is used soon

// What one of the passes over a piece fetches of the next one: LINES lines of the cache a group of inputs.
template <int LINES>
struct Ahead {
  const char *at;
  int64_t step;  // bytes a group

  Ahead(const void *next, int64_t pass, int64_t passes, int64_t groups)
      : at(static_cast<const char *>(next)), step((256 + passes - 1) / passes) {
    at += pass * step * groups;
  }
  void fetch() {
#pragma GCC unroll 4
    for (int l = 0; l < LINES; l++) _mm_prefetch(at + 64 * l, _MM_HINT_T0);
    at += step;
  }
};

// f(the lines a group that each of so many passes fetches, as a constant)
template <class F>
inline void lines_of(int64_t passes, F f) {
  if (passes == 1) f(std::integral_constant<int, 4>());
  else if (passes < 4) f(std::integral_constant<int, 2>());
  else f(std::integral_constant<int, 1>());
}
