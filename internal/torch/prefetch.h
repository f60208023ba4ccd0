// Prefetching the weights that a thread multiplies next. Included in the namespace of an instruction set.

// One of the passes over some weights prefetches its share of the weights that follow, so that the memory is
// read during all passes. Processors prefetch too little by themselves, and all of it in the first pass.
template <int LINES, int HINT = _MM_HINT_T0>
struct Prefetch {
  const char *at;
  int64_t step;  // bytes

  // The pass takes so many steps, each over so many bytes of the weights.
  Prefetch(const void *next, int64_t pass, int64_t passes, int64_t steps, int64_t bytes)
      : at(static_cast<const char *>(next)), step((bytes + passes - 1) / passes) {
    at += pass * step * steps;
  }
  void take_step() {
#pragma GCC unroll 4
    for (int l = 0; l < LINES; l++) _mm_prefetch(at + 64 * l, _mm_hint(HINT));
    at += step;
  }
};

// f(cache lines that each of so many passes prefetches of BYTES, as a constant)
template <int BYTES, class F>
inline void lines_of(int64_t passes, F f) {
  if (passes == 1) f(std::integral_constant<int, BYTES / 64>());
  else if (passes < BYTES / 64) f(std::integral_constant<int, (BYTES / 64 + 1) / 2>());
  else f(std::integral_constant<int, 1>());
}

// A panel is multiplied in pieces, which stay in the first-level cache for all rows. The next piece is prefetched.
constexpr int64_t GROUP = 256;  // bytes of a group of inputs
constexpr int64_t PIECE = 64;   // groups at most: 16 KB
inline int64_t piece_of(int64_t passes) { return passes < 4 ? PIECE / 2 : PIECE; }  // few passes use a piece up sooner
