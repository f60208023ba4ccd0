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
#include "tensors.h"
#include "upload.h"

namespace agt {
namespace {

int8_t codebook_numbers[CODEBOOKS];

void set_codebooks(const int8_t *grids) {
  memcpy(codebook_numbers, grids, IQ1_UP_CODEBOOK);
  for (int i = 0; i < 2048 * 8; i++) {
    codebook_numbers[IQ1_UP_CODEBOOK + i] = int8_t(8 * grids[IQ1_UP_CODEBOOK + i] + 1);
    codebook_numbers[IQ1_DOWN_CODEBOOK + i] = int8_t(8 * grids[IQ1_UP_CODEBOOK + i] - 1);
  }
}

// What a group of a block multiplies (q−zero) by, and adds to the products.
struct Step {
  float scale, least;
};

AGT_INLINE Step step_of(const BlockForm &f, const BlockScales &s, float scale, float least, int64_t group) {
  if (f.floats) return {s.group_scale[group], 0};
  if (!f.factors) return {scale, least};
  return {scale * float(s.factor[group]), f.least ? least * float(s.least_factor[group]) : 0};
}

template <class T>
AGT_INLINE void numbers_of(const uint8_t *b, float *to) {
  constexpr BlockForm f = T::form;
  int8_t q[f.values];
  BlockScales s;
  T::unpack(b, q, &s, codebook_numbers);
  const float scale = f.floats ? 0 : f.unit * c10::detail::fp16_ieee_to_fp32_value(s.scale);
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
  static void unpack(const uint8_t *b, int8_t *q, BlockScales *s) { T::unpack(b, q, s, codebook_numbers); }
  static void to_float(const uint8_t *b, int64_t blocks, float *to) { convert<T>(b, blocks, to); }
  static void to_bf16(const uint8_t *b, int64_t blocks, uint16_t *to) { convert<T>(b, blocks, to); }
};

#define AGT_AVX2 __attribute__((target("avx2")))
#define AGT_HALVES __attribute__((target("avx2,f16c")))

template <class T>
struct AVX2 {
  AGT_AVX2 static void unpack(const uint8_t *b, int8_t *q, BlockScales *s) { T::unpack(b, q, s, codebook_numbers); }
  AGT_AVX2 static void to_float(const uint8_t *b, int64_t blocks, float *to) { convert<T>(b, blocks, to); }
  AGT_AVX2 static void to_bf16(const uint8_t *b, int64_t blocks, uint16_t *to) { convert<T>(b, blocks, to); }
};

// The instruction takes the smallest numbers, with exponents that bfloat16 has no room for, as zero. Blocks with float16 scales
// have none: those are larger.
template <class T>
__attribute__((target("avx2,f16c,avx512f,avx512bf16"))) void to_bf16_avx512(const uint8_t *b, int64_t blocks, uint16_t *to) {
  constexpr BlockForm f = T::form;
  const __m512i zero = _mm512_set1_epi32(f.zero);
  for (const uint8_t *end = b + blocks * f.bytes; b < end; b += f.bytes) {
    int8_t q[f.values];
    BlockScales s;
    T::unpack(b, q, &s, codebook_numbers);
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
  if (has == Instructions::BASE) return {F16::form, nullptr, nullptr, F16::to_float, F16::to_bf16};
  return {F16::form, nullptr, nullptr, F16AVX2::to_float, has == Instructions::AVX512_BF16 ? halves_to_bf16_avx512 : F16AVX2::to_bf16};
}

template <class T>
BlockFormat format_of(const char *name) {
  const Instructions has = kernels().instructions;
  if (has == Instructions::BASE) return {T::form, name, Plain<T>::unpack, Plain<T>::to_float, Plain<T>::to_bf16};
  const bool wide = has == Instructions::AVX512_BF16 && !T::form.floats;
  return {T::form, name, AVX2<T>::unpack, AVX2<T>::to_float, wide ? to_bf16_avx512<T> : AVX2<T>::to_bf16};
}

}  // namespace

BlockFormat block_format(int type) {
  switch (type) {
    case 1: return format_of_halves();
#define AGT_FORMAT(number, T) \
  case number: return format_of<T>(#T);
    AGT_BLOCK_TYPES(AGT_FORMAT)
  }
  TORCH_CHECK(false, "blocks of type ", type);
}

const int8_t *codebooks() { return codebook_numbers; }

namespace {
void convert_parts(const BlockFormat &f, const agt_bytes *parts, int n, at::Tensor &t) {
  auto dst = static_cast<char *>(t.data_ptr());
  for (int i = 0; i < n; i++) {
    const int64_t blocks = parts[i].n / f.bytes, each = f.values * int64_t(t.element_size());
    at::parallel_for(0, blocks, (1 << 16) / f.values, [&](int64_t from, int64_t end) {
      f.read(static_cast<const char *>(parts[i].data) + from * f.bytes, end - from, t.scalar_type() == at::kBFloat16, dst + from * each);
    });
    dst += blocks * each;
  }
}
}  // namespace

}  // namespace agt

extern "C" {

int agt_set_codebooks(const int8_t *of, int64_t n, char **err) {
  return agt::guarded(err, [&] {
    TORCH_CHECK(n == agt::IQ1_DOWN_CODEBOOK, n, " numbers of codebooks, not ", agt::IQ1_DOWN_CODEBOOK);
    agt::set_codebooks(of);
  });
}

int agt_from_blocks(agt_tensor *out, const agt_bytes *parts, int n, const int64_t *shape, int ndim, int type, int dtype, int device,
                    char **err) {
  return agt::guarded(err, [&] {
    const agt::BlockFormat f = agt::block_format(type);
    const auto to = at::ScalarType(dtype);
    TORCH_CHECK(to == at::kFloat || to == at::kBFloat16, "numbers of blocks in ", to);
    TORCH_CHECK(ndim > 0 && shape[ndim - 1] % f.values == 0, "rows are no whole blocks of ", f.values);
    at::Tensor t = at::empty(at::IntArrayRef(shape, ndim), at::TensorOptions().dtype(to).device(agt::device_of(device)));
    const int64_t bytes = agt::total(parts, n);
    TORCH_CHECK(bytes == t.numel() / f.values * f.bytes, bytes, " bytes for ", t.numel(), " numbers");
    if (f.name && agt::gpu::have(t)) agt::gpu::dequantise_blocks(f, parts, n, t);
    else agt::fill_on_host(t, [&](at::Tensor &host) { agt::convert_parts(f, parts, n, host); });
    *out = reinterpret_cast<agt_tensor>(new at::Tensor(std::move(t)));
  });
}

}  // extern "C"
