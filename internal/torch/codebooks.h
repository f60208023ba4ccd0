// Blocks of GGUFs whose codes are indices of codebooks (IQ1 to IQ3), or ternary. Included by block_types.h.

// Where `unpack` has the codebooks: those of package iqgrids, but for IQ1's, whose numbers are 8·number + 1 and 8·number − 1.
constexpr int64_t IQ2_XXS_CODEBOOK = 0, IQ2_XS_CODEBOOK = IQ2_XXS_CODEBOOK + 256 * 8, IQ2_S_CODEBOOK = IQ2_XS_CODEBOOK + 512 * 8,
                  IQ3_XXS_CODEBOOK = IQ2_S_CODEBOOK + 1024 * 8, IQ3_S_CODEBOOK = IQ3_XXS_CODEBOOK + 256 * 4, IQ1_UP_CODEBOOK = IQ3_S_CODEBOOK + 512 * 4,
                  IQ1_DOWN_CODEBOOK = IQ1_UP_CODEBOOK + 2048 * 8, CODEBOOKS = IQ1_DOWN_CODEBOOK + 2048 * 8;

AGT_INLINE uint32_t four_at(const uint8_t *b) {
  uint32_t x;
  memcpy(&x, b, 4);
  return x;
}

// Eight signs by seven bits: the last makes their number even.
AGT_INLINE uint32_t signs_of(uint32_t seven) { return seven | (0x6996u >> ((seven ^ seven >> 4) & 15) & 1) << 7; }

// As many positive numbers as W has bytes, with signs by bits. A negative number is all bits turned, and one more: no byte
// carries, since none is 255.
template <class W>
AGT_INLINE void signed_of(const int8_t *grid, uint32_t signs, int8_t *q) {
  constexpr W ones = W(0x0101010101010101), bits = W(0x8040201008040201);
  constexpr uint32_t all = (uint32_t(1) << sizeof(W)) - 1;
  const W is_set = (W(signs & all) * ones & bits) + ones * 0x7f;  // the upper bit of each byte
  const W minus = is_set >> 7 & ones;
  W x;
  memcpy(&x, grid, sizeof x);
  x = (x ^ minus * 0xff) + minus;
  memcpy(q, &x, sizeof x);
}

// Scales are d·(½ + s)/4.
struct IQ2_XXS {
  static constexpr BlockForm form{.values = 256, .bytes = 66, .group = 32, .bits = 8, .factors = true, .codebooks = true, .unit = .125f};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *codebooks) {
    s->scale = word_at(b);
    for (int j = 0; j < 8; j++) {
      const uint8_t *at = b + 2 + 8 * j;
      const uint32_t signs = four_at(at + 4);
      s->factor[j] = int8_t(2 * (signs >> 28) + 1);
      for (int k = 0; k < 4; k++)
        signed_of<uint64_t>(codebooks + IQ2_XXS_CODEBOOK + 8 * at[k], signs_of(signs >> (7 * k) & 127), q + 32 * j + 8 * k);
    }
  }
};

struct IQ2_XS {
  static constexpr BlockForm form{.values = 256, .bytes = 74, .group = 16, .bits = 8, .factors = true, .codebooks = true, .unit = .125f};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *codebooks) {
    s->scale = word_at(b);
    for (int j = 0; j < 16; j++) s->factor[j] = int8_t(2 * (b[66 + j / 2] >> (j % 2 * 4) & 15) + 1);
    for (int g = 0; g < 32; g++) {
      const uint32_t x = word_at(b + 2 + 2 * g);
      signed_of<uint64_t>(codebooks + IQ2_XS_CODEBOOK + 8 * (x & 511), signs_of(x >> 9), q + 8 * g);
    }
  }
};

struct IQ2_S {
  static constexpr BlockForm form{.values = 256, .bytes = 82, .group = 16, .bits = 8, .factors = true, .codebooks = true, .unit = .125f};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *codebooks) {
    s->scale = word_at(b);
    for (int j = 0; j < 16; j++) s->factor[j] = int8_t(2 * (b[74 + j / 2] >> (j % 2 * 4) & 15) + 1);
    for (int g = 0; g < 32; g++)
      signed_of<uint64_t>(codebooks + IQ2_S_CODEBOOK + 8 * (b[2 + g] | (b[66 + g / 4] >> (g % 4 * 2) & 3) << 8), b[34 + g], q + 8 * g);
  }
};

// Scales are d·(½ + s)/2.
struct IQ3_XXS {
  static constexpr BlockForm form{.values = 256, .bytes = 98, .group = 32, .bits = 8, .factors = true, .codebooks = true, .unit = .25f};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *codebooks) {
    s->scale = word_at(b);
    for (int j = 0; j < 8; j++) {
      const uint32_t signs = four_at(b + 66 + 4 * j);
      s->factor[j] = int8_t(2 * (signs >> 28) + 1);
      for (int k = 0; k < 8; k++) {
        const uint32_t eight = signs_of(signs >> (k / 2 * 7) & 127);
        signed_of<uint32_t>(codebooks + IQ3_XXS_CODEBOOK + 4 * b[2 + 8 * j + k], eight >> (k % 2 * 4), q + 32 * j + 4 * k);
      }
    }
  }
};

struct IQ3_S {
  static constexpr BlockForm form{.values = 256, .bytes = 110, .group = 32, .bits = 8, .factors = true, .codebooks = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *codebooks) {
    s->scale = word_at(b);
    for (int j = 0; j < 8; j++) s->factor[j] = int8_t(2 * (b[106 + j / 2] >> (j % 2 * 4) & 15) + 1);
    for (int g = 0; g < 64; g++)
      signed_of<uint32_t>(codebooks + IQ3_S_CODEBOOK + 4 * (b[2 + g] | (b[66 + g / 8] >> (g % 8) & 1) << 8),
                          uint32_t(b[74 + g / 2] >> (g % 2 * 4)), q + 4 * g);
  }
};

// Numbers are −1, 0 and 1, moved by an eighth.
AGT_INLINE void moved_of(const int8_t *codebooks, int index, bool down, int8_t *q) {
  memcpy(q, codebooks + (down ? IQ1_DOWN_CODEBOOK : IQ1_UP_CODEBOOK) + 8 * index, 8);
}

struct IQ1_S {
  static constexpr BlockForm form{.values = 256, .bytes = 50, .group = 32, .bits = 8, .factors = true, .codebooks = true, .unit = .125f};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *codebooks) {
    s->scale = word_at(b);
    for (int j = 0; j < 8; j++) {
      const int high = word_at(b + 34 + 2 * j);
      s->factor[j] = int8_t(2 * (high >> 12 & 7) + 1);
      for (int k = 0; k < 4; k++) moved_of(codebooks, b[2 + 4 * j + k] | (high >> (3 * k) & 7) << 8, high & 0x8000, q + 32 * j + 8 * k);
    }
  }
};

// The scale lies in the upper four bits of each of four numbers.
struct IQ1_M {
  static constexpr BlockForm form{.values = 256, .bytes = 56, .group = 16, .bits = 8, .factors = true, .codebooks = true, .unit = .125f};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *codebooks) {
    s->scale = 0;
    for (int i = 0; i < 4; i++) s->scale |= uint16_t(word_at(b + 48 + 2 * i) >> 12 << (4 * i));
    for (int j = 0; j < 16; j++) s->factor[j] = int8_t(2 * (word_at(b + 48 + j / 4 * 2) >> (j % 4 * 3) & 7) + 1);
    for (int g = 0; g < 32; g++) {
      const int high = b[32 + g / 2] >> (g % 2 * 4);
      moved_of(codebooks, b[g] | (high & 7) << 8, high & 8, q + 8 * g);
    }
  }
};

// Five ternary digits a byte: they are the carries as the byte, a fraction of 256, is multiplied by three.
struct TQ1_0 {
  static constexpr BlockForm form{.values = 256, .bytes = 54, .group = 32, .bits = 8};
  AGT_INLINE int8_t *digits_of(const uint8_t *b, int bytes, int digits, int8_t *q) {
    for (int d = 0, power = 1; d < digits; d++, power *= 3)
      for (int i = 0; i < bytes; i++) *q++ = int8_t((uint8_t(b[i] * power) * 3 >> 8) - 1);
    return q;
  }
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    s->scale = word_at(b + 52);
    q = digits_of(b, 32, 5, q);
    q = digits_of(b + 32, 16, 5, q);
    digits_of(b + 48, 4, 4, q);
  }
};

struct TQ2_0 {
  static constexpr BlockForm form{.values = 256, .bytes = 66, .group = 32, .bits = 8};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    s->scale = word_at(b + 64);
    for (int j = 0; j < 8; j++)
      for (int i = 0; i < 32; i++) q[32 * j + i] = int8_t((b[j / 4 * 32 + i] >> (j % 4 * 2) & 3) - 1);
  }
};
