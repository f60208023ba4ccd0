// Included by attend_few.h and attend_avx2.h, in their namespaces.

// Where the keys and values of a chunk are, and the keys that the caller reads next.
template <class S>
struct Chunk {
  const S *rows[3 * ATTEND_KEYS];  // keys, then values, both filled up to a multiple of 16 with the last one, then the next keys
  int64_t count = 0, bytes;        // of a row, of all heads of the call

  Chunk(const S *kpool, const S *vpool, const AttendArgs &a) : bytes(a.heads * a.dim * int64_t(sizeof(S))) {
    for (const S *pool : {kpool, vpool}) {
      add(pool, a, a.from, a.to);
      for (; count % 16 != 0; count++) rows[count] = rows[count - 1];
    }
    add(kpool, a, a.to, std::min(a.next, a.to + ATTEND_KEYS));
  }
  void add(const S *pool, const AttendArgs &a, int64_t from, int64_t to) {
    const int64_t row = a.kv_heads * a.dim;
    const int32_t *block = a.blocks + from / a.block_size;
    for (int64_t in = from % a.block_size; from < to; block++, in = 0) {
      const S *at = pool + (*block * a.block_size + in) * row + a.head * a.dim;
      for (; in < a.block_size && from < to; in++, from++, at += row) rows[count++] = at;
    }
  }
  // n rows into the second cache, from `first` on. One call for neighbouring rows: the processor
  // fetches consecutive lines faster, and into the first cache too few at a time.
  void prefetch(int64_t first, int64_t n) const {
    for (int64_t t = first; t < std::min(first + n, count); t++)
      for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char *>(rows[t]) + i, _MM_HINT_T1);
  }
};
