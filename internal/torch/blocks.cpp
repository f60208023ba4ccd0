//go:build libtorch

// Numbers in the blocks of a GGUF, to the bit as the gguf package computes them: a product is rounded before it is added
// to another number, for which nothing here may be compiled for processors with FMA.
#include "blocks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>

#include "guard.h"
#include "shim.h"

namespace agt {
namespace {

#define AGT_CLONES __attribute__((target_clones("avx2", "default")))

float half_at(const uint8_t *b) {
  uint16_t h;
  memcpy(&h, b, 2);
  return c10::detail::fp16_ieee_to_fp32_value(h);
}

// The 6-bit scale and least value j of a block of Q4_K or Q5_K.
void scale_and_least(const uint8_t *s, int j, float *scale, float *least) {
  *scale = float(j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6 << 4));
  *least = float(j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6 << 4));
}

}  // namespace

// Each of these computes so many groups of a row, from group g on.

AGT_CLONES void blocks_q8_0(const uint8_t *row, int64_t g, int64_t groups, float *to) {
  for (int64_t end = g + groups; g < end; g++, to += 32) {
    const uint8_t *b = row + 34 * g;
    const float d = half_at(b);
    for (int i = 0; i < 32; i++) to[i] = d * float(int8_t(b[2 + i]));
  }
}

AGT_CLONES void blocks_q4_0(const uint8_t *row, int64_t g, int64_t groups, float *to) {
  for (int64_t end = g + groups; g < end; g++, to += 32) {
    const uint8_t *b = row + 18 * g;
    const float d = half_at(b);
    for (int i = 0; i < 16; i++) to[i] = d * float(int(b[2 + i] & 15) - 8), to[16 + i] = d * float(int(b[2 + i] >> 4) - 8);
  }
}

AGT_CLONES void blocks_q4_1(const uint8_t *row, int64_t g, int64_t groups, float *to) {
  for (int64_t end = g + groups; g < end; g++, to += 32) {
    const uint8_t *b = row + 20 * g;
    const float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < 16; i++) to[i] = d * float(b[4 + i] & 15) + m, to[16 + i] = d * float(b[4 + i] >> 4) + m;
  }
}

AGT_CLONES void blocks_q4_k(const uint8_t *row, int64_t g, int64_t groups, float *to) {
  for (int64_t end = g + groups; g < end; g++, to += 32) {
    const uint8_t *b = row + 144 * (g / 8), *q = b + 16 + g % 8 / 2 * 32;
    const int shift = g % 2 * 4;
    float s, m;
    scale_and_least(b + 4, int(g % 8), &s, &m);
    s *= half_at(b), m *= half_at(b + 2);
    for (int i = 0; i < 32; i++) to[i] = s * float(q[i] >> shift & 15) - m;
  }
}

AGT_CLONES void blocks_q5_k(const uint8_t *row, int64_t g, int64_t groups, float *to) {
  for (int64_t end = g + groups; g < end; g++, to += 32) {
    const uint8_t *b = row + 176 * (g / 8), *high = b + 16, *q = b + 48 + g % 8 / 2 * 32;
    const int j = int(g % 8), shift = j % 2 * 4;
    float s, m;
    scale_and_least(b + 4, j, &s, &m);
    s *= half_at(b), m *= half_at(b + 2);
    for (int i = 0; i < 32; i++) to[i] = s * float((q[i] >> shift & 15) | (high[i] >> j & 1) << 4) - m;
  }
}

AGT_CLONES void blocks_q6_k(const uint8_t *row, int64_t g, int64_t groups, float *to) {
  for (int64_t end = g + groups; g < end; g++, to += 32) {
    const uint8_t *b = row + 210 * (g / 8);
    const int j = int(g % 8), part = j % 4;  // of a half: 32 numbers each
    const uint8_t *low = b + j / 4 * 64 + part % 2 * 32, *high = b + 128 + j / 4 * 32, *scales = b + 192 + 2 * j;
    const float d = half_at(b + 208), s[2] = {d * float(int8_t(scales[0])), d * float(int8_t(scales[1]))};
    for (int k = 0; k < 2; k++)
      for (int i = 16 * k; i < 16 * k + 16; i++)
        to[i] = s[k] * float(int((low[i] >> (part / 2 * 4) & 15) | (high[i] >> (part * 2) & 3) << 4) - 32);
  }
}

// Each of these gives the whole numbers q of a block, and its scales.

uint16_t word_at(const uint8_t *b) {
  uint16_t x;
  memcpy(&x, b, 2);
  return x;
}

void halves_of(const uint8_t *b, int8_t *q) {
  for (int i = 0; i < 16; i++) q[i] = int8_t(b[i] & 15), q[16 + i] = int8_t(b[i] >> 4);
}

void unpack_q8_0(const uint8_t *b, int8_t *q, BlockScales *s) {
  s->scale = word_at(b);
  memcpy(q, b + 2, 32);
}

void unpack_q4_0(const uint8_t *b, int8_t *q, BlockScales *s) {
  s->scale = word_at(b);
  s->least = c10::detail::fp16_ieee_from_fp32_value(-8 * half_at(b));
  halves_of(b + 2, q);
}

void unpack_q4_1(const uint8_t *b, int8_t *q, BlockScales *s) {
  s->scale = word_at(b), s->least = word_at(b + 2);
  halves_of(b + 4, q);
}

// Of Q4_K and Q5_K. The least values are subtracted there.
void scales_of_k(const uint8_t *b, BlockScales *s) {
  s->scale = word_at(b), s->least = word_at(b + 2) ^ 0x8000;
  for (int j = 0; j < 8; j++) {
    float scale, least;
    scale_and_least(b + 4, j, &scale, &least);
    s->factor[j] = int8_t(scale), s->least_factor[j] = int8_t(least);
  }
}

AGT_CLONES void unpack_q4_k(const uint8_t *b, int8_t *q, BlockScales *s) {
  scales_of_k(b, s);
  for (int j = 0; j < 8; j++)
    for (int i = 0; i < 32; i++) q[32 * j + i] = int8_t(b[16 + j / 2 * 32 + i] >> (j % 2 * 4) & 15);
}

AGT_CLONES void unpack_q5_k(const uint8_t *b, int8_t *q, BlockScales *s) {
  scales_of_k(b, s);
  for (int j = 0; j < 8; j++)
    for (int i = 0; i < 32; i++) q[32 * j + i] = int8_t((b[48 + j / 2 * 32 + i] >> (j % 2 * 4) & 15) | (b[16 + i] >> j & 1) << 4);
}

AGT_CLONES void unpack_q6_k(const uint8_t *b, int8_t *q, BlockScales *s) {
  s->scale = word_at(b + 208);
  memcpy(s->factor, b + 192, 16);
  for (int j = 0; j < 8; j++) {
    const int part = j % 4;  // of a half: 32 numbers each
    const uint8_t *low = b + j / 4 * 64 + part % 2 * 32, *high = b + 128 + j / 4 * 32;
    for (int i = 0; i < 32; i++) q[32 * j + i] = int8_t(((low[i] >> (part / 2 * 4) & 15) | (high[i] >> (part * 2) & 3) << 4) - 32);
  }
}

// To the nearest bfloat16, even of two.
__attribute__((target_clones("arch=x86-64-v4", "avx2", "default"))) void round_to_bf16(const float *from, int64_t n, uint16_t *to) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t b;
    memcpy(&b, from + i, 4);
    const uint32_t near = (b + 0x7fff + (b >> 16 & 1)) >> 16, none = b >> 16 | 0x40;
    to[i] = uint16_t((b & 0x7fffffff) > 0x7f800000 ? none : near);
  }
}

BlockFormat block_format(int type) {
  switch (type) {
    case 2: return {32, 18, blocks_q4_0, unpack_q4_0, 32, 4, true, false};
    case 3: return {32, 20, blocks_q4_1, unpack_q4_1, 32, 4, true, false};
    case 8: return {32, 34, blocks_q8_0, unpack_q8_0, 32, 8, false, false};
    case 12: return {256, 144, blocks_q4_k, unpack_q4_k, 32, 4, true, true};
    case 13: return {256, 176, blocks_q5_k, unpack_q5_k, 32, 8, true, true};
    case 14: return {256, 210, blocks_q6_k, unpack_q6_k, 16, 8, false, true};
  }
  TORCH_CHECK(false, "blocks of type ", type);
}

void read_blocks(const BlockFormat &f, const char *row, int64_t at, int64_t n, bool bf16, void *to) {
  const auto *b = reinterpret_cast<const uint8_t *>(row);
  if (!bf16) return f.groups(b, at / BLOCK_GROUP, n / BLOCK_GROUP, static_cast<float *>(to));
  constexpr int64_t PART = 256;
  float part[PART];
  for (int64_t i = 0; i < n; i += PART) {
    const int64_t k = std::min(PART, n - i);
    f.groups(b, (at + i) / BLOCK_GROUP, k / BLOCK_GROUP, part);
    round_to_bf16(part, k, static_cast<uint16_t *>(to) + i);
  }
}

}  // namespace agt

extern "C" {

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
        agt::read_blocks(f, static_cast<const char *>(parts[i].data), from * f.values, (end - from) * f.values, to == at::kBFloat16,
                         dst + from * each);
      });
      dst += blocks * each;
    }
    *out = reinterpret_cast<agt_tensor>(new at::Tensor(std::move(t)));
  });
}

}  // extern "C"
