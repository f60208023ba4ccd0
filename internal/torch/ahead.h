// Fetching what a thread multiplies next while it multiplies. Included in the namespace of an instruction set.

// What one of the passes over some weights fetches of those that follow: its share, so that the memory is read
// all the while. Processors fetch too little by themselves, and all of it in the first pass.
template <int LINES, int HINT = _MM_HINT_T0>
struct Ahead {
  const char *at;
  int64_t step;  // bytes

  // The pass takes so many steps, each over so many bytes of the weights.
  Ahead(const void *next, int64_t pass, int64_t passes, int64_t steps, int64_t bytes)
      : at(static_cast<const char *>(next)), step((bytes + passes - 1) / passes) {
    at += pass * step * steps;
  }
  void fetch() {
#pragma GCC unroll 4
    for (int l = 0; l < LINES; l++) _mm_prefetch(at + 64 * l, _mm_hint(HINT));
    at += step;
  }
};

// A panel is multiplied in pieces, which stay in the first cache for all rows, and the next piece is fetched meanwhile.
constexpr int64_t PIECE = 64;  // groups of inputs at most: 16 KB
inline int64_t piece_of(int64_t passes) { return passes < 4 ? PIECE / 2 : PIECE; }  // what is fetched soon is used soon

// f(the lines of 256 bytes that each of so many passes fetches, as a constant)
template <class F>
inline void lines_of(int64_t passes, F f) {
  if (passes == 1) f(std::integral_constant<int, 4>());
  else if (passes < 4) f(std::integral_constant<int, 2>());
  else f(std::integral_constant<int, 1>());
}
