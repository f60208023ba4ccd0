// The types of blocks in GGUFs: where each has its codes and scales. The host and NVRTC compile this text.
#pragma once
#include "portable.h"

namespace agt {

// What a block is. Its numbers are unit·scale·factor[i/group]·(q[i]−zero) + least·least_factor[i/group], without the second term
// where there is no least, and without factors where there are none. With floats they are group_scale[i/group]·q[i].
struct BlockForm {
  int64_t values, bytes;
  int64_t group, bits;  // of q: 4 bits are 0 to 15
  int zero = 0;
  bool least = false, factors = false, floats = false, codebooks = false;  // codes are indices of codebooks
  float unit = 1;  // a power of two
};

// Scale and least are float16. What a type does not have is not set.
struct BlockScales {
  uint16_t scale, least;
  int8_t factor[16], least_factor[16];
  float group_scale[4];
};

AGT_INLINE uint16_t word_at(const uint8_t *b) {
  uint16_t x;
  memcpy(&x, b, 2);
  return x;
}

// Each of these types gives the whole numbers q of a block, and its scales; the last argument are the codebooks (codebooks.h).

struct Q8_0 {
  static constexpr BlockForm form{.values = 32, .bytes = 34, .group = 32, .bits = 8};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    s->scale = word_at(b);
    memcpy(q, b + 2, 32);
  }
};

AGT_INLINE void halves_of(const uint8_t *b, int8_t *q) {
  for (int i = 0; i < 16; i++) q[i] = int8_t(b[i] & 15), q[16 + i] = int8_t(b[i] >> 4);
}

struct Q4_0 {
  static constexpr BlockForm form{.values = 32, .bytes = 18, .group = 32, .bits = 4, .zero = 8};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    s->scale = word_at(b);
    halves_of(b + 2, q);
  }
};

struct Q4_1 {
  static constexpr BlockForm form{.values = 32, .bytes = 20, .group = 32, .bits = 4, .least = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    s->scale = word_at(b), s->least = word_at(b + 2);
    halves_of(b + 4, q);
  }
};

// Numbers of 5 bits: the fifth is in high.
AGT_INLINE void fives_of(const uint8_t *b, const uint8_t *high, int zero, int8_t *q) {
  uint32_t h;
  memcpy(&h, high, 4);
  for (int i = 0; i < 16; i++) {
    q[i] = int8_t(int((b[i] & 15) | (h >> i & 1) << 4) - zero);
    q[16 + i] = int8_t(int(b[i] >> 4 | (h >> (16 + i) & 1) << 4) - zero);
  }
}

struct Q5_0 {
  static constexpr BlockForm form{.values = 32, .bytes = 22, .group = 32, .bits = 8};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    s->scale = word_at(b);
    fives_of(b + 6, b + 2, 16, q);
  }
};

struct Q5_1 {
  static constexpr BlockForm form{.values = 32, .bytes = 24, .group = 32, .bits = 8, .least = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    s->scale = word_at(b), s->least = word_at(b + 2);
    fives_of(b + 8, b + 4, 0, q);
  }
};

struct Q2_K {
  static constexpr BlockForm form{.values = 256, .bytes = 84, .group = 16, .bits = 8, .least = true, .factors = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    s->scale = word_at(b + 80), s->least = word_at(b + 82) ^ 0x8000;  // subtracted
    for (int j = 0; j < 16; j++) s->factor[j] = int8_t(b[j] & 15), s->least_factor[j] = int8_t(b[j] >> 4);
    for (int j = 0; j < 8; j++)
      for (int i = 0; i < 32; i++) q[32 * j + i] = int8_t(b[16 + j / 4 * 32 + i] >> (j % 4 * 2) & 3);
  }
};

struct Q3_K {
  static constexpr BlockForm form{.values = 256, .bytes = 110, .group = 16, .bits = 8, .factors = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    s->scale = word_at(b + 108);
    const uint8_t *six = b + 96;
    for (int j = 0; j < 16; j++) s->factor[j] = int8_t(((six[j % 8] >> (j / 8 * 4) & 15) | (six[8 + j % 4] >> (j / 4 * 2) & 3) << 4) - 32);
    for (int j = 0; j < 8; j++)
      for (int i = 0; i < 32; i++) q[32 * j + i] = int8_t((b[32 + j / 4 * 32 + i] >> (j % 4 * 2) & 3) - (b[i] >> j & 1 ? 0 : 4));
  }
};

// Numbers of a table, by 4 bits each.
AGT_INLINE void listed_of(const uint8_t *b, int8_t *q) {
  constexpr int8_t numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  for (int i = 0; i < 16; i++) q[i] = numbers[b[i] & 15], q[16 + i] = numbers[b[i] >> 4];
}

struct IQ4_NL {
  static constexpr BlockForm form{.values = 32, .bytes = 18, .group = 32, .bits = 8};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    s->scale = word_at(b);
    listed_of(b + 2, q);
  }
};

struct IQ4_XS {
  static constexpr BlockForm form{.values = 256, .bytes = 136, .group = 32, .bits = 8, .factors = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    s->scale = word_at(b);
    const uint16_t high = word_at(b + 2);
    for (int j = 0; j < 8; j++) {
      s->factor[j] = int8_t(((b[4 + j / 2] >> (j % 2 * 4) & 15) | (high >> (2 * j) & 3) << 4) - 32);
      listed_of(b + 8 + 16 * j, q + 32 * j);
    }
  }
};

// Of Q4_K and Q5_K: 6 bits each. The least values are subtracted there.
AGT_INLINE void scales_of_k(const uint8_t *b, BlockScales *s) {
  s->scale = word_at(b), s->least = word_at(b + 2) ^ 0x8000;
  const uint8_t *six = b + 4;
  for (int j = 0; j < 4; j++) {
    s->factor[j] = int8_t(six[j] & 63), s->least_factor[j] = int8_t(six[j + 4] & 63);
    s->factor[4 + j] = int8_t((six[j + 8] & 15) | six[j] >> 6 << 4);
    s->least_factor[4 + j] = int8_t(six[j + 8] >> 4 | six[j + 4] >> 6 << 4);
  }
}

struct Q4_K {
  static constexpr BlockForm form{.values = 256, .bytes = 144, .group = 32, .bits = 4, .least = true, .factors = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    scales_of_k(b, s);
    for (int j = 0; j < 8; j++)
      for (int i = 0; i < 32; i++) q[32 * j + i] = int8_t(b[16 + j / 2 * 32 + i] >> (j % 2 * 4) & 15);
  }
};

struct Q5_K {
  static constexpr BlockForm form{.values = 256, .bytes = 176, .group = 32, .bits = 8, .least = true, .factors = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    scales_of_k(b, s);
    for (int j = 0; j < 8; j++)
      for (int i = 0; i < 32; i++) q[32 * j + i] = int8_t((b[48 + j / 2 * 32 + i] >> (j % 2 * 4) & 15) | (b[16 + i] >> j & 1) << 4);
  }
};

struct Q6_K {
  static constexpr BlockForm form{.values = 256, .bytes = 210, .group = 16, .bits = 8, .factors = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    s->scale = word_at(b + 208);
    memcpy(s->factor, b + 192, 16);
    for (int j = 0; j < 8; j++) {
      const int part = j % 4;  // of a half: 32 numbers each
      const uint8_t *low = b + j / 4 * 64 + part % 2 * 32, *high = b + 128 + j / 4 * 32;
      for (int i = 0; i < 32; i++) q[32 * j + i] = int8_t(((low[i] >> (part / 2 * 4) & 15) | (high[i] >> (part * 2) & 3) << 4) - 32);
    }
  }
};

// Floats of four bits, doubled: two bits of exponent, one of mantissa.
AGT_INLINE void e2m1_of(const uint8_t *b, int bytes, int8_t *q) {
  constexpr int8_t numbers[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  for (int i = 0; i < bytes; i++) q[i] = numbers[b[i] & 15], q[bytes + i] = numbers[b[i] >> 4];
}

// The scale is half of a power of two.
struct MXFP4 {
  static constexpr BlockForm form{.values = 32, .bytes = 17, .group = 32, .bits = 8, .floats = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    s->group_scale[0] = float_of(b[0] < 2 ? 0x00200000u << b[0] : uint32_t(b[0] - 1) << 23);
    e2m1_of(b + 1, 16, q);
  }
};

// Scales are half of a number of four bits of exponent and three of mantissa; the one that is none counts as 0.
struct NVFP4 {
  static constexpr BlockForm form{.values = 64, .bytes = 36, .group = 16, .bits = 8, .floats = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s, const int8_t *) {
    for (int g = 0; g < 4; g++) {
      const uint32_t exponent = b[g] >> 3 & 15, mantissa = b[g] & 7;
      s->group_scale[g] = b[g] == 0x7f ? 0 : exponent == 0 ? float(mantissa) / 1024 : float_of((exponent + 119) << 23 | mantissa << 20);
      e2m1_of(b + 4 + 8 * g, 8, q + 16 * g);
    }
  }
};

#include "codebooks.h"

// The types with their numbers in GGUFs.
#define AGT_BLOCK_TYPES(X)                                                                                                      \
  X(2, Q4_0) X(3, Q4_1) X(6, Q5_0) X(7, Q5_1) X(8, Q8_0) X(10, Q2_K) X(11, Q3_K) X(12, Q4_K) X(13, Q5_K) X(14, Q6_K)            \
  X(16, IQ2_XXS) X(17, IQ2_XS) X(18, IQ3_XXS) X(19, IQ1_S) X(20, IQ4_NL) X(21, IQ3_S) X(22, IQ2_S) X(23, IQ4_XS) X(29, IQ1_M) \
  X(34, TQ1_0) X(35, TQ2_0) X(39, MXFP4) X(40, NVFP4)

}  // namespace agt
