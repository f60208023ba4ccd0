// Products of any number of rows by some_rows<R, BITS, KINDS, FACTORS>, which is of the file that includes this.

template <int BITS, int KINDS, bool FACTORS>
void all_rows(QuantRows x, int64_t rows, int64_t k, const QuantPanel &w, const char *base, float *y) {
  while (rows > 0) {
    const int64_t n = std::min<int64_t>(rows, 4);
    switch (n) {
      case 1: some_rows<1, BITS, KINDS, FACTORS>(x, k, w, base, y); break;
      case 2: some_rows<2, BITS, KINDS, FACTORS>(x, k, w, base, y); break;
      case 3: some_rows<3, BITS, KINDS, FACTORS>(x, k, w, base, y); break;
      case 4: some_rows<4, BITS, KINDS, FACTORS>(x, k, w, base, y); break;
    }
    rows -= n;
    y += n * 64;
    x = {x.q + n * k, x.scale + n * (k / 32), x.sum + n * (k / 16)};
  }
}

template <int BITS>
void of_bits(const QuantRows &x, int64_t rows, int64_t k, const QuantPanel &w, const char *base, float *y) {
  const bool least = w.kinds == 2, factors = w.factor >= 0;
  if (least && factors) all_rows<BITS, 2, true>(x, rows, k, w, base, y);
  else if (least) all_rows<BITS, 2, false>(x, rows, k, w, base, y);
  else if (factors) all_rows<BITS, 1, true>(x, rows, k, w, base, y);
  else all_rows<BITS, 1, false>(x, rows, k, w, base, y);
}
