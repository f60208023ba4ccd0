// Products of any number of rows by some_rows<R, BITS, KINDS, FACTORS, LINES>, which takes passes_of(R) passes over the
// panel. Both are of the file that includes this.

// The first of the passes over these rows is pass `pass` of so many over the panel.
template <int R, int BITS, int KINDS, bool FACTORS>
void block_of_rows(const QuantRows &x, int64_t k, const QuantPanel &w, const char *base, const char *next, int64_t pass, int64_t passes, float *y) {
  lines_of<128>(passes, [&](auto lines) { some_rows<R, BITS, KINDS, FACTORS, lines.value>(x, k, w, base, next, pass, passes, y); });
}

// next is the panel that this thread multiplies next, whose q are prefetched; null: none.
template <int BITS, int KINDS, bool FACTORS>
void all_rows(QuantRows x, int64_t rows, int64_t k, const QuantPanel &w, const char *base, const QuantPanel *next, float *y) {
  const char *after = base + (next ? next->q : w.q);
  const int64_t passes = rows / 4 * passes_of(4) + (rows % 4 ? passes_of(rows % 4) : 0);
  for (int64_t pass = 0; rows > 0;) {
    const int64_t n = std::min<int64_t>(rows, 4);
    switch (n) {
      case 1: block_of_rows<1, BITS, KINDS, FACTORS>(x, k, w, base, after, pass, passes, y); break;
      case 2: block_of_rows<2, BITS, KINDS, FACTORS>(x, k, w, base, after, pass, passes, y); break;
      case 3: block_of_rows<3, BITS, KINDS, FACTORS>(x, k, w, base, after, pass, passes, y); break;
      case 4: block_of_rows<4, BITS, KINDS, FACTORS>(x, k, w, base, after, pass, passes, y); break;
    }
    pass += passes_of(n);
    rows -= n;
    y += n * 64;
    x = {x.q + n * k, x.scale + n * (k / 32), x.sum + n * (k / 16)};
  }
}

template <int BITS>
void of_bits(const QuantRows &x, int64_t rows, int64_t k, const QuantPanel &w, const char *base, const QuantPanel *next, float *y) {
  const bool least = w.kinds == 2, factors = w.factor >= 0;
  if (least && factors) all_rows<BITS, 2, true>(x, rows, k, w, base, next, y);
  else if (least) all_rows<BITS, 2, false>(x, rows, k, w, base, next, y);
  else if (factors) all_rows<BITS, 1, true>(x, rows, k, w, base, next, y);
  else all_rows<BITS, 1, false>(x, rows, k, w, base, next, y);
}
