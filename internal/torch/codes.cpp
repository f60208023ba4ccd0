//go:build libtorch

// Numbers of matrices of codes, to the bit as package codes computes them.
#include "codes.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Half.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "bf16.h"
#include "guard.h"
#include "kernels.h"
#include "tensors.h"
#include "upload.h"

namespace agt {
namespace {

#define AGT_AVX2 __attribute__((target("avx2,f16c")))

typedef uint32_t Word __attribute__((aligned(1), may_alias));  // of a mapped file: anywhere
typedef uint32_t Eight __attribute__((vector_size(32)));
typedef int32_t EightInts __attribute__((vector_size(32)));
typedef float EightFloats __attribute__((vector_size(32)));
typedef Eight EightAnywhere __attribute__((aligned(4), may_alias));

constexpr Eight FOURS = {0, 4, 8, 12, 16, 20, 24, 28}, INTERLEAVED_FOURS = {0, 16, 4, 20, 8, 24, 12, 28};
constexpr Eight TWOS = {0, 2, 4, 6, 8, 10, 12, 14};

// The codes of whole words, of which the last may have some that are not wanted.
AGT_INLINE void codes_of_words(const agt_codes &c, const Word *w, int64_t n, uint32_t *q) {
  const Eight shifts = c.order == INTERLEAVED ? INTERLEAVED_FOURS : FOURS;
  if (c.bits == 4) {
    for (int64_t i = 0; i < n; i += 8, w++) {
      const uint32_t x = *w;
      *reinterpret_cast<EightAnywhere *>(q + i) = (Eight{x, x, x, x, x, x, x, x} >> shifts) & 15;
    }
    return;
  }
  for (int64_t i = 0; i < n; i += 16, w++)
    for (int half = 0; half < 2; half++) {
      const uint32_t x = *w >> (16 * half);
      *reinterpret_cast<EightAnywhere *>(q + i + 8 * half) = (Eight{x, x, x, x, x, x, x, x} >> TWOS) & 3;
    }
}

AGT_INLINE void codes_of(const agt_codes &c, int64_t row, int64_t from, int64_t n, uint32_t *q) {
  const char *data = static_cast<const char *>(c.data);
  if (c.order == DOWN) {
    const int64_t each = 32 / c.bits;
    const auto *w = reinterpret_cast<const Word *>(data + row / each * c.stride) + from;
    const uint32_t shift = uint32_t(row % each * c.bits), mask = (uint32_t(1) << c.bits) - 1;
    for (int64_t i = 0; i < n; i++) q[i] = w[i] >> shift & mask;
  } else if (c.bits == 8) {
    const auto *b = reinterpret_cast<const uint8_t *>(data + row * c.stride + from);
    for (int64_t i = 0; i < n; i++) q[i] = b[i];
  } else {
    codes_of_words(c, reinterpret_cast<const Word *>(data + row * c.stride + from * c.bits / 8), n, q);
  }
}

// For n rounded up to 8. A number whose exponent's bits are zero is as many of the smallest as the other bits say.
AGT_INLINE void values_of(const agt_codes &c, const uint32_t *codes, int64_t n, float *to) {
  for (int64_t i = 0; i < n; i += 8) {
    const Eight q = *reinterpret_cast<const EightAnywhere *>(codes + i);
    Eight bits;
    if (c.meaning == UNSIGNED) {
      bits = Eight(__builtin_convertvector(EightInts(q), EightFloats));
    } else if (c.meaning == SIGNED) {
      bits = Eight(__builtin_convertvector(EightInts(q << 24) >> 24, EightFloats));
    } else if (c.meaning == E4M3) {
      const Eight size = q & 0x7f, small = Eight(__builtin_convertvector(EightInts(size), EightFloats) * 0x1p-9f);
      const Eight number = EightInts(size) < 8 ? small : (size << 20) + (120u << 23);
      bits = (EightInts(size) == 0x7f ? Eight{} + 0x7fc00000u : number) | (q & 0x80) << 24;
    } else {
      const Eight size = q & 7, small = Eight(__builtin_convertvector(EightInts(size), EightFloats) * .5f);
      bits = (EightInts(size) < 2 ? small : (size << 22) + (126u << 23)) | (q & 8) << 28;
    }
    *reinterpret_cast<EightAnywhere *>(to + i) = bits;
  }
}

// Of a stored row, its columns from one on.
AGT_INLINE void scale(const agt_codes &c, int64_t row, int64_t from, int64_t n, float *x) {
  const int64_t down = c.groups && c.transposed ? c.groups[row] : row / c.high;
  const float *scales = c.scales + down * c.across, *zeros = c.zeros ? c.zeros + down * c.across : nullptr;
  if (c.groups && !c.transposed) {
    for (int64_t i = 0; i < n; i++) {
      const int32_t g = c.groups[from + i];
      x[i] = (x[i] - (zeros ? zeros[g] : 0)) * scales[g];
    }
    return;
  }
  if (c.wide == 1) {
    if (zeros)
      for (int64_t i = 0; i < n; i++) x[i] = (x[i] - zeros[from + i]) * scales[from + i];
    else
      for (int64_t i = 0; i < n; i++) x[i] *= scales[from + i];
    return;
  }
  int64_t g = from / c.wide;
  for (int64_t i = 0, end = (g + 1) * c.wide - from; i < n; g++, end += c.wide) {
    const float s = scales[g], z = zeros ? zeros[g] : 0;
    for (const int64_t stop = std::min(n, end); i < stop; i++) x[i] = (x[i] - z) * s;
  }
}

// The numbers of a stored row, but for the rounding to float16.
AGT_INLINE void compute(const agt_codes &c, int64_t row, int64_t from, int64_t n, float *to) {
  uint32_t q[CodeReader::MOST + 16];
  codes_of(c, row, from, n, q);
  values_of(c, q, n, to);
  scale(c, row, from, n, to);
  if (c.rounding == TO_BF16)
    for (int64_t i = 0; i < n; i++) to[i] = float_of(bf16_of(to[i]) << 16);
}

AGT_INLINE void bf16s_of(const float *x, int64_t n, uint16_t *to) {
  for (int64_t i = 0; i < n; i++) to[i] = uint16_t(bf16_of(x[i]));
}

AGT_INLINE void pairs_of(const float *first, const float *second, int64_t n, uint32_t *to) {
  for (int64_t i = 0; i < n; i++) to[i] = bf16_of(first[i]) | bf16_of(second[i]) << 16;
}

struct Plain {
  static void numbers(const agt_codes &c, int64_t row, int64_t from, int64_t n, float *to) {
    compute(c, row, from, n, to);
    if (c.rounding == TO_HALF)
      for (int64_t i = 0; i < n; i++) to[i] = c10::detail::fp16_ieee_to_fp32_value(c10::detail::fp16_ieee_from_fp32_value(to[i]));
  }
  static void to_bf16(const float *x, int64_t n, uint16_t *to) { bf16s_of(x, n, to); }
  static void pair(const float *first, const float *second, int64_t n, uint32_t *to) { pairs_of(first, second, n, to); }
  static void store(const float *x, int64_t n, uint32_t *to) { memcpy(to, x, size_t(4 * n)); }
  static void transpose(const float *from, int64_t ld, int64_t rows, float *to, int64_t to_ld) {
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < 8; j++) to[j * to_ld + i] = from[i * ld + j];
  }
};

struct AVX2 {
  AGT_AVX2 static void numbers(const agt_codes &c, int64_t row, int64_t from, int64_t n, float *to) {
    compute(c, row, from, n, to);
    if (c.rounding != TO_HALF) return;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm256_cvtps_ph(_mm256_loadu_ps(to + i), _MM_FROUND_TO_NEAREST_INT)));
    for (; i < n; i++) to[i] = _cvtsh_ss(_cvtss_sh(to[i], _MM_FROUND_TO_NEAREST_INT));
  }
  AGT_AVX2 static void to_bf16(const float *x, int64_t n, uint16_t *to) { bf16s_of(x, n, to); }
  AGT_AVX2 static void pair(const float *first, const float *second, int64_t n, uint32_t *to) {
    alignas(32) uint32_t x[16];
    for (int64_t i = 0; i < n; i += 16) {
      pairs_of(first + i, second + i, 16, x);
      store(reinterpret_cast<const float *>(x), 16, to + i);
    }
  }
  AGT_AVX2 static void store(const float *x, int64_t n, uint32_t *to) {
    for (int64_t i = 0; i < n; i += 8)
      _mm256_stream_si256(reinterpret_cast<__m256i *>(to + i), _mm256_loadu_si256(reinterpret_cast<const __m256i *>(x + i)));
  }
  AGT_AVX2 static void transpose(const float *from, int64_t ld, int64_t rows, float *to, int64_t to_ld) {
    for (int64_t i = 0; i < rows; i += 8, from += 8 * ld) {
      __m256 r[8], t[8];
      for (int k = 0; k < 8; k++) r[k] = _mm256_loadu_ps(from + k * ld);
      for (int k = 0; k < 4; k++) {  // pairs of rows, then fours, then all
        t[2 * k] = _mm256_unpacklo_ps(r[2 * k], r[2 * k + 1]);
        t[2 * k + 1] = _mm256_unpackhi_ps(r[2 * k], r[2 * k + 1]);
      }
      for (int k = 0; k < 8; k += 4)
        for (int h = 0; h < 2; h++) {
          r[k + 2 * h] = _mm256_shuffle_ps(t[k + h], t[k + 2 + h], 0x44);
          r[k + 2 * h + 1] = _mm256_shuffle_ps(t[k + h], t[k + 2 + h], 0xee);
        }
      for (int k = 0; k < 4; k++) {
        _mm256_storeu_ps(to + k * to_ld + i, _mm256_permute2f128_ps(r[k], r[4 + k], 0x20));
        _mm256_storeu_ps(to + (4 + k) * to_ld + i, _mm256_permute2f128_ps(r[k], r[4 + k], 0x31));
      }
    }
  }
};

template <class T>
constexpr CodeReader reader_of = {T::numbers, T::to_bf16, T::pair, T::store, T::transpose};

// In float32 or bfloat16.
template <class To>
void copy(const CodeReader &reader, const float *x, int64_t n, To *to) {
  if constexpr (sizeof(To) == 2) reader.to_bf16(x, n, to);
  else memcpy(to, x, size_t(4 * n));
}

template <class To>
void write_rows(const agt_codes &c, const CodeReader &reader, To *to) {
  at::parallel_for(0, c.count * c.rows, std::max<int64_t>(1, (1 << 15) / c.cols), [&](int64_t begin, int64_t end) {
    float x[CodeReader::MOST + 16];
    for (int64_t row = begin; row < end; row++)
      for (int64_t from = 0; from < c.cols; from += CodeReader::MOST) {
        const int64_t n = std::min(CodeReader::MOST, c.cols - from);
        reader.numbers(c, row, from, n, x);
        copy(reader, x, n, to + row * c.cols + from);
      }
  });
}

template <class To>
void write_columns(const agt_codes &c, const CodeReader &reader, To *to) {
  constexpr int64_t ROWS = 256, COLS = 128;          // of a tile
  const int64_t tiles = (c.rows + ROWS - 1) / ROWS;  // of a matrix
  at::parallel_for(0, c.count * tiles, 1, [&](int64_t begin, int64_t end) {
    constexpr int64_t WIDE = COLS + 16;
    std::vector<float> tile(size_t(ROWS * WIDE));
    float columns[8][ROWS];
    for (int64_t t = begin; t < end; t++) {
      const int64_t matrix = t / tiles, row = t % tiles * ROWS, high = std::min(ROWS, c.rows - row);
      for (int64_t from = 0; from < c.cols; from += COLS) {
        const int64_t wide = std::min(COLS, c.cols - from);
        for (int64_t i = 0; i < high; i++) reader.numbers(c, matrix * c.rows + row + i, from, wide, &tile[size_t(i * WIDE)]);
        for (int64_t j = 0; j < wide; j += 8) {
          reader.transpose(&tile[size_t(j)], WIDE, (high + 7) / 8 * 8, columns[0], ROWS);
          for (int64_t k = 0; k < std::min<int64_t>(8, wide - j); k++)
            copy(reader, columns[k], high, to + (matrix * c.cols + from + j + k) * c.rows + row);
        }
      }
    }
  });
}

template <class To>
void write_numbers(const agt_codes &c, To *to) {
  const CodeReader reader = code_reader();
  if (c.transposed) write_columns(c, reader, to);
  else write_rows(c, reader, to);
}

void write(const agt_codes &c, at::Tensor &to) {
  if (to.scalar_type() == at::kFloat) write_numbers(c, static_cast<float *>(to.data_ptr()));
  else write_numbers(c, static_cast<uint16_t *>(to.data_ptr()));
}

// f computes the numbers of each part into its place in t.
void for_each_part(const agt_codes *parts, int n, at::Tensor &t, void (*f)(const agt_codes &, at::Tensor &)) {
  at::Tensor flat = t.view({-1});
  for (int64_t at = 0; n > 0; parts++, n--) {
    const int64_t numbers = parts->count * parts->rows * parts->cols;
    at::Tensor to = flat.narrow(0, at, numbers);
    f(*parts, to);
    at += numbers;
  }
}

}  // namespace

CodeReader code_reader() { return kernels().instructions == Instructions::BASE ? reader_of<Plain> : reader_of<AVX2>; }

void check_codes(const agt_codes &c) {
  const int64_t each = 32 / c.bits, rows = c.count * c.rows, stored = c.order == DOWN ? (rows + each - 1) / each : rows;
  const int64_t down = c.groups && c.transposed ? 0 : (rows + c.high - 1) / c.high;
  TORCH_CHECK(c.bytes >= stored * c.stride, c.bytes, " bytes for ", stored, " rows of ", c.stride);
  TORCH_CHECK(c.stride * 8 >= c.cols * (c.order == DOWN ? 32 : c.bits), "rows of ", c.stride, " bytes for ", c.cols, " codes");
  TORCH_CHECK(c.n_scales >= down * c.across, c.n_scales, " scales for ", down, " times ", c.across);
  TORCH_CHECK(!c.zeros || c.n_zeros == c.n_scales, c.n_zeros, " zeros for ", c.n_scales, " scales");
  TORCH_CHECK(c.across * c.wide >= c.cols || (c.groups && !c.transposed), c.across, " blocks of ", c.wide, " for ", c.cols, " columns");
  if (!c.groups) return;
  TORCH_CHECK(c.n_groups == (c.transposed ? c.rows : c.cols) && (c.count == 1 || !c.transposed), c.n_groups, " groups");
  const int64_t most = c.transposed ? c.n_scales / c.across : c.across;
  for (int64_t i = 0; i < c.n_groups; i++) TORCH_CHECK(c.groups[i] >= 0 && c.groups[i] < most, "group ", c.groups[i], " of ", most);
}

}  // namespace agt

extern "C" {

int agt_from_codes(agt_tensor *out, const agt_codes *parts, int n, const int64_t *shape, int ndim, int dtype, int device, char **err) {
  return agt::guarded(err, [&] {
    const auto to = at::ScalarType(dtype);
    TORCH_CHECK(to == at::kFloat || to == at::kBFloat16, "numbers of codes in ", to);
    at::Tensor t = at::empty(at::IntArrayRef(shape, ndim), at::TensorOptions().dtype(to).device(agt::device_of(device)));
    int64_t numbers = 0;
    for (int i = 0; i < n; i++) {
      agt::check_codes(parts[i]);
      numbers += parts[i].count * parts[i].rows * parts[i].cols;
    }
    TORCH_CHECK(numbers == t.numel(), numbers, " codes for ", t.numel(), " numbers");
    if (agt::gpu::have(t)) agt::for_each_part(parts, n, t, agt::gpu::dequantise_codes);
    else agt::fill_on_host(t, [&](at::Tensor &host) { agt::for_each_part(parts, n, host, agt::write); });
    *out = reinterpret_cast<agt_tensor>(new at::Tensor(std::move(t)));
  });
}

}  // extern "C"
