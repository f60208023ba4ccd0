//go:build libtorch

// Numbers in the blocks of a GGUF, to the bit as the gguf package computes them: a product is rounded before a number is
// added to it, so none of this is compiled for FMA.
#include "blocks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Half.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "bf16.h"
#include "guard.h"
#include "kernels.h"
#include "shim.h"

namespace agt {
namespace {

AGT_INLINE uint16_t word_at(const uint8_t *b) {
  uint16_t x;
  memcpy(&x, b, 2);
  return x;
}

// Each of these types gives the whole numbers q of a block, and its scales.

struct Q8_0 {
  static constexpr BlockForm form{.values = 32, .bytes = 34, .group = 32, .bits = 8};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s) {
    s->scale = word_at(b);
    memcpy(q, b + 2, 32);
  }
};

AGT_INLINE void halves_of(const uint8_t *b, int8_t *q) {
  for (int i = 0; i < 16; i++) q[i] = int8_t(b[i] & 15), q[16 + i] = int8_t(b[i] >> 4);
}

struct Q4_0 {
  static constexpr BlockForm form{.values = 32, .bytes = 18, .group = 32, .bits = 4, .zero = 8};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s) {
    s->scale = word_at(b);
    halves_of(b + 2, q);
  }
};

struct Q4_1 {
  static constexpr BlockForm form{.values = 32, .bytes = 20, .group = 32, .bits = 4, .least = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s) {
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
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s) {
    s->scale = word_at(b);
    fives_of(b + 6, b + 2, 16, q);
  }
};

struct Q5_1 {
  static constexpr BlockForm form{.values = 32, .bytes = 24, .group = 32, .bits = 8, .least = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s) {
    s->scale = word_at(b), s->least = word_at(b + 2);
    fives_of(b + 8, b + 4, 0, q);
  }
};

struct Q2_K {
  static constexpr BlockForm form{.values = 256, .bytes = 84, .group = 16, .bits = 8, .least = true, .factors = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s) {
    s->scale = word_at(b + 80), s->least = word_at(b + 82) ^ 0x8000;  // subtracted
    for (int j = 0; j < 16; j++) s->factor[j] = int8_t(b[j] & 15), s->least_factor[j] = int8_t(b[j] >> 4);
    for (int j = 0; j < 8; j++)
      for (int i = 0; i < 32; i++) q[32 * j + i] = int8_t(b[16 + j / 4 * 32 + i] >> (j % 4 * 2) & 3);
  }
};

struct Q3_K {
  static constexpr BlockForm form{.values = 256, .bytes = 110, .group = 16, .bits = 8, .factors = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s) {
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
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s) {
    s->scale = word_at(b);
    listed_of(b + 2, q);
  }
};

struct IQ4_XS {
  static constexpr BlockForm form{.values = 256, .bytes = 136, .group = 32, .bits = 8, .factors = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s) {
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
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s) {
    scales_of_k(b, s);
    for (int j = 0; j < 8; j++)
      for (int i = 0; i < 32; i++) q[32 * j + i] = int8_t(b[16 + j / 2 * 32 + i] >> (j % 2 * 4) & 15);
  }
};

struct Q5_K {
  static constexpr BlockForm form{.values = 256, .bytes = 176, .group = 32, .bits = 8, .least = true, .factors = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s) {
    scales_of_k(b, s);
    for (int j = 0; j < 8; j++)
      for (int i = 0; i < 32; i++) q[32 * j + i] = int8_t((b[48 + j / 2 * 32 + i] >> (j % 2 * 4) & 15) | (b[16 + i] >> j & 1) << 4);
  }
};

struct Q6_K {
  static constexpr BlockForm form{.values = 256, .bytes = 210, .group = 16, .bits = 8, .factors = true};
  AGT_INLINE void unpack(const uint8_t *b, int8_t *q, BlockScales *s) {
    s->scale = word_at(b + 208);
    memcpy(s->factor, b + 192, 16);
    for (int j = 0; j < 8; j++) {
      const int part = j % 4;  // of a half: 32 numbers each
      const uint8_t *low = b + j / 4 * 64 + part % 2 * 32, *high = b + 128 + j / 4 * 32;
      for (int i = 0; i < 32; i++) q[32 * j + i] = int8_t(((low[i] >> (part / 2 * 4) & 15) | (high[i] >> (part * 2) & 3) << 4) - 32);
    }
  }
};

#include "blocks_grids.h"

// What a group of a block multiplies (q−zero) by, and adds to the products.
struct Step {
  float scale, least;
};

AGT_INLINE Step step_of(const BlockForm &f, const BlockScales &s, float scale, float least, int64_t group) {
  if (!f.factors) return {scale, least};
  return {scale * float(s.factor[group]), f.least ? least * float(s.least_factor[group]) : 0};
}

template <class T>
AGT_INLINE void numbers_of(const uint8_t *b, float *to) {
  constexpr BlockForm f = T::form;
  int8_t q[f.values];
  BlockScales s;
  T::unpack(b, q, &s);
  const float scale = f.unit * c10::detail::fp16_ieee_to_fp32_value(s.scale);
  const float least = f.least ? c10::detail::fp16_ieee_to_fp32_value(s.least) : 0;
  for (int64_t g = 0; g < f.values / f.group; g++) {
    const Step step = step_of(f, s, scale, least, g);
    for (int64_t i = g * f.group; i < (g + 1) * f.group; i++) {
      const float x = step.scale * float(q[i] - f.zero);
      to[i] = f.least ? x + step.least : x;
    }
  }
}

// Numbers of so many blocks, in float32 or bfloat16.
template <class T, class To>
AGT_INLINE void convert(const uint8_t *b, int64_t blocks, To *to) {
  constexpr BlockForm f = T::form;
  for (const uint8_t *end = b + blocks * f.bytes; b < end; b += f.bytes, to += f.values) {
    if constexpr (sizeof(To) == 4) {
      numbers_of<T>(b, to);
    } else {
      float x[f.values];
      numbers_of<T>(b, x);
      for (int64_t i = 0; i < f.values; i++) to[i] = uint16_t(bf16_of(x[i]));
    }
  }
}

template <class T>
struct Plain {
  static void unpack(const uint8_t *b, int8_t *q, BlockScales *s) { T::unpack(b, q, s); }
  static void to_float(const uint8_t *b, int64_t blocks, float *to) { convert<T>(b, blocks, to); }
  static void to_bf16(const uint8_t *b, int64_t blocks, uint16_t *to) { convert<T>(b, blocks, to); }
};

#define AGT_AVX2 __attribute__((target("avx2")))
#define AGT_HALVES __attribute__((target("avx2,f16c")))

template <class T>
struct AVX2 {
  AGT_AVX2 static void unpack(const uint8_t *b, int8_t *q, BlockScales *s) { T::unpack(b, q, s); }
  AGT_AVX2 static void to_float(const uint8_t *b, int64_t blocks, float *to) { convert<T>(b, blocks, to); }
  AGT_AVX2 static void to_bf16(const uint8_t *b, int64_t blocks, uint16_t *to) { convert<T>(b, blocks, to); }
};

// The instruction takes the smallest numbers, with exponents that bfloat16 has no room for, as zero. Blocks have none: their
// float16 scales are larger.
template <class T>
__attribute__((target("avx2,f16c,avx512f,avx512bf16"))) void to_bf16_avx512(const uint8_t *b, int64_t blocks, uint16_t *to) {
  constexpr BlockForm f = T::form;
  const __m512i zero = _mm512_set1_epi32(f.zero);
  for (const uint8_t *end = b + blocks * f.bytes; b < end; b += f.bytes) {
    int8_t q[f.values];
    BlockScales s;
    T::unpack(b, q, &s);
    const float scale = f.unit * _cvtsh_ss(s.scale), least = f.least ? _cvtsh_ss(s.least) : 0;
    for (int64_t i = 0; i < f.values; i += 32, to += 32) {
      __m512 x[2];
      for (int h = 0; h < 2; h++) {
        const int64_t at = i + 16 * h;
        const Step step = step_of(f, s, scale, least, at / f.group);
        const __m512i whole = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(q + at)));
        // _mm512_mul_ps could be fused with the sum.
        x[h] = _mm512_mul_round_ps(_mm512_set1_ps(step.scale), _mm512_cvtepi32_ps(_mm512_sub_epi32(whole, zero)), _MM_FROUND_CUR_DIRECTION);
        if (f.least) x[h] = _mm512_add_ps(x[h], _mm512_set1_ps(step.least));
      }
      _mm512_storeu_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(x[1], x[0])));
    }
  }
}

// Float16 numbers are blocks of one.
struct F16 {
  static constexpr BlockForm form{.values = 1, .bytes = 2, .group = 1, .bits = 16};
  static void to_float(const uint8_t *b, int64_t n, float *to) {
    for (int64_t i = 0; i < n; i++) to[i] = c10::detail::fp16_ieee_to_fp32_value(word_at(b + 2 * i));
  }
  static void to_bf16(const uint8_t *b, int64_t n, uint16_t *to) {
    for (int64_t i = 0; i < n; i++) to[i] = uint16_t(bf16_of(c10::detail::fp16_ieee_to_fp32_value(word_at(b + 2 * i))));
  }
};

struct F16AVX2 {
  AGT_HALVES static void to_float(const uint8_t *b, int64_t n, float *to) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(b + 2 * i))));
    for (; i < n; i++) to[i] = _cvtsh_ss(word_at(b + 2 * i));
  }
  AGT_HALVES static void to_bf16(const uint8_t *b, int64_t n, uint16_t *to) {
    float x[64];
    for (int64_t from = 0; from < n; from += 64) {
      const int64_t m = std::min<int64_t>(64, n - from);
      to_float(b + 2 * from, m, x);
      for (int64_t i = 0; i < m; i++) to[from + i] = uint16_t(bf16_of(x[i]));
    }
  }
};

// A float16 is no number that bfloat16 has no exponent for.
__attribute__((target("avx2,f16c,avx512f,avx512bf16"))) void halves_to_bf16_avx512(const uint8_t *b, int64_t n, uint16_t *to) {
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const auto *at = reinterpret_cast<const __m256i *>(b + 2 * i);
    const __m512 low = _mm512_cvtph_ps(_mm256_loadu_si256(at)), high = _mm512_cvtph_ps(_mm256_loadu_si256(at + 1));
    _mm512_storeu_si512(to + i, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
  }
  F16AVX2::to_bf16(b + 2 * i, n - i, to + i);
}

BlockFormat format_of_halves() {
  const Instructions has = kernels().instructions;
  if (has == Instructions::BASE) return {F16::form, nullptr, F16::to_float, F16::to_bf16};
  return {F16::form, nullptr, F16AVX2::to_float, has == Instructions::AVX512_BF16 ? halves_to_bf16_avx512 : F16AVX2::to_bf16};
}

template <class T>
BlockFormat format_of() {
  const Instructions has = kernels().instructions;
  if (has == Instructions::BASE) return {T::form, Plain<T>::unpack, Plain<T>::to_float, Plain<T>::to_bf16};
  return {T::form, AVX2<T>::unpack, AVX2<T>::to_float, has == Instructions::AVX512_BF16 ? to_bf16_avx512<T> : AVX2<T>::to_bf16};
}

}  // namespace

BlockFormat block_format(int type) {
  switch (type) {
    case 1: return format_of_halves();
    case 2: return format_of<Q4_0>();
    case 3: return format_of<Q4_1>();
    case 6: return format_of<Q5_0>();
    case 7: return format_of<Q5_1>();
    case 8: return format_of<Q8_0>();
    case 10: return format_of<Q2_K>();
    case 11: return format_of<Q3_K>();
    case 12: return format_of<Q4_K>();
    case 13: return format_of<Q5_K>();
    case 14: return format_of<Q6_K>();
    case 16: return format_of<IQ2_XXS>();
    case 17: return format_of<IQ2_XS>();
    case 18: return format_of<IQ3_XXS>();
    case 19: return format_of<IQ1_S>();
    case 20: return format_of<IQ4_NL>();
    case 21: return format_of<IQ3_S>();
    case 22: return format_of<IQ2_S>();
    case 23: return format_of<IQ4_XS>();
    case 29: return format_of<IQ1_M>();
    case 34: return format_of<TQ1_0>();
    case 35: return format_of<TQ2_0>();
  }
  TORCH_CHECK(false, "blocks of type ", type);
}

}  // namespace agt

extern "C" {

int agt_set_grids(const int8_t *of, int64_t n, char **err) {
  return agt::guarded(err, [&] {
    TORCH_CHECK(n == agt::GRIDS, n, " numbers of codebooks, not ", agt::GRIDS);
    agt::set_grids(of);
  });
}

int agt_from_blocks(agt_tensor *out, const agt_bytes *parts, int n, const int64_t *shape, int ndim, int type, int dtype, char **err) {
  return agt::guarded(err, [&] {
    const agt::BlockFormat f = agt::block_format(type);
    const auto to = at::ScalarType(dtype);
    TORCH_CHECK(to == at::kFloat || to == at::kBFloat16, "numbers of blocks in ", to);
    TORCH_CHECK(ndim > 0 && shape[ndim - 1] % f.values == 0, "rows are no whole blocks of ", f.values);
    at::Tensor t = at::empty(at::IntArrayRef(shape, ndim), to);
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += parts[i].n;
    TORCH_CHECK(bytes == t.numel() / f.values * f.bytes, bytes, " bytes for ", t.numel(), " numbers");
    auto dst = static_cast<char *>(t.data_ptr());
    for (int i = 0; i < n; i++) {
      const int64_t blocks = parts[i].n / f.bytes, each = f.values * int64_t(t.element_size());
      at::parallel_for(0, blocks, (1 << 16) / f.values, [&](int64_t from, int64_t end) {
        f.read(static_cast<const char *>(parts[i].data) + from * f.bytes, end - from, to == at::kBFloat16, dst + from * each);
      });
      dst += blocks * each;
    }
    *out = reinterpret_cast<agt_tensor>(new at::Tensor(std::move(t)));
  });
}

}  // extern "C"
