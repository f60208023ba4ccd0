//go:build libtorch

// Weights as a GGUF has them, put into panels for quant_panel, and back into a matrix.
#include "quant.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <emmintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "blocks.h"
#include "guard.h"
#include "shim.h"
#include "tensors.h"

namespace agt {
namespace {

constexpr int64_t PANEL = 64;

// Rows r[i] of 8 numbers of 16 bits become columns.
void transpose8(__m128i r[8]) {
  __m128i t[8];
  for (int i = 0; i < 4; i++) {
    t[2 * i] = _mm_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm_unpacklo_epi32(t[i], t[i + 2]);
    r[i + 1] = _mm_unpackhi_epi32(t[i], t[i + 2]);
    r[i + 2] = _mm_unpacklo_epi32(t[i + 1], t[i + 3]);
    r[i + 3] = _mm_unpackhi_epi32(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    t[2 * i] = _mm_unpacklo_epi64(r[i], r[4 + i]);
    t[2 * i + 1] = _mm_unpackhi_epi64(r[i], r[4 + i]);
  }
  for (int i = 0; i < 8; i++) r[i] = t[i];
}

struct Part {
  const uint8_t *data;
  int64_t rows, bytes;
  BlockFormat f;

  int64_t bytes_of(int64_t numbers) const { return numbers / f.values * f.bytes; }

  // So many numbers from there on: the processor does not prefetch as many rows at once as a panel has.
  void prefetch(int64_t number, int64_t n) const {
    for (int64_t i = bytes_of(number), end = std::min(bytes_of(number + n), bytes); i < end; i += 64)
      _mm_prefetch(reinterpret_cast<const char *>(data + i), _MM_HINT_T1);
  }
};

struct Packer {
  std::vector<Part> parts;
  int64_t n = 0, k = 0;

  // f(output within the panel, its part, its row there)
  template <class F>
  void each(int64_t panel, F f) const {
    int64_t first = 0;
    for (const Part &part : parts) {
      const int64_t from = std::max(first, panel * PANEL), to = std::min(first + part.rows, (panel + 1) * PANEL);
      for (int64_t o = from; o < to; o++) f(o - panel * PANEL, part, o - first);
      first += part.rows;
    }
  }

  at::Tensor pack(const agt_quant_part *from, int n_parts) {
    k = from[0].cols;
    for (int i = 0; i < n_parts; i++) {
      const BlockFormat f = block_format(from[i].blocks);
      TORCH_CHECK(f.unpack && f.unit == 1 && !f.floats, "quant: blocks of type ", from[i].blocks, " are not multiplied as they are stored");
      TORCH_CHECK(from[i].cols == k && k > 0 && k % f.values == 0, "quant: rows of ", from[i].cols, " numbers in blocks of ", f.values,
                  " beside rows of ", k);
      TORCH_CHECK(from[i].rows > 0 && from[i].bytes == from[i].rows * (k / f.values) * f.bytes, "quant: ", from[i].bytes, " bytes for ",
                  from[i].rows, " rows of ", k);
      parts.push_back({static_cast<const uint8_t *>(from[i].data), from[i].rows, from[i].bytes, f});
      n += from[i].rows;
    }
    const int64_t count = (n + PANEL - 1) / PANEL;
    std::vector<QuantPanel> panels(count);
    int64_t at = sizeof(QuantHead) + count * sizeof(QuantPanel);
    auto place = [&](int64_t bytes) {
      at = (at + 63) / 64 * 64;
      at += bytes;
      return at - bytes;
    };
    for (int64_t p = 0; p < count; p++) {
      // All outputs of a panel have their numbers in one form.
      QuantPanel &to = panels[p];
      to = {0, 0, -1, 32, 256, 4, 1};
      bool factors = false;
      each(p, [&](int64_t, const Part &part, int64_t) {
        to.group = std::min(to.group, part.f.group);
        to.block = std::min(to.block, part.f.values);
        to.bits = std::max(to.bits, part.f.bits);
        to.kinds = std::max<int64_t>(to.kinds, has_least(part.f) ? 2 : 1);
        factors = factors || part.f.factors;
      });
      to.q = place(k * PANEL * to.bits / 8);
      to.scale = place(scale_bytes(to));
      if (factors) to.factor = place(factor_bytes(to));
    }
    at::Tensor out = at::empty({at}, at::kByte);
    char *base = static_cast<char *>(out.data_ptr());
    const QuantHead head{QuantHead::MAGIC, n, k};
    memcpy(base, &head, sizeof head);
    memcpy(base + sizeof head, panels.data(), count * sizeof(QuantPanel));
    at::parallel_for(0, count, 1, [&](int64_t first, int64_t end) {
      for (int64_t p = first; p < end; p++) fill(panels[p], p, base);
    });
    return out;
  }

  // Numbers of a panel have no zero but a least value.
  static bool has_least(const BlockForm &f) { return f.least || f.zero != 0; }

  int64_t scale_bytes(const QuantPanel &w) const { return k / w.block * w.kinds * PANEL * 2; }
  int64_t factor_bytes(const QuantPanel &w) const { return k / w.group * w.kinds * PANEL; }

  void fill(const QuantPanel &w, int64_t p, char *base) const {
    constexpr int64_t MOST = 256;  // numbers of a row at a time: a block or several
    int8_t q[PANEL][MOST];
    memset(q, 0, sizeof q);
    auto *scale = reinterpret_cast<uint16_t *>(base + w.scale);
    auto *factor = w.factor < 0 ? nullptr : reinterpret_cast<int8_t *>(base + w.factor);
    memset(scale, 0, size_t(scale_bytes(w)));
    if (factor) memset(factor, 0, size_t(factor_bytes(w)));
    auto *to = reinterpret_cast<uint16_t *>(base + w.q);
    for (int64_t from = 0; from < k; from += MOST) {
      const int64_t numbers = std::min(MOST, k - from);
      each(p, [&](int64_t o, const Part &part, int64_t row) {
        part.prefetch(from + numbers < k ? row * k + from + numbers : (row + PANEL) * k, numbers);
        const uint8_t *block = part.data + part.bytes_of(row * k + from);
        for (int64_t i = 0; i < numbers; i += part.f.values, block += part.f.bytes) {
          BlockScales s;
          part.f.unpack(block, q[o] + i, &s);
          put_scales(w, part.f, s, from + i, scale + o, factor ? factor + o : nullptr);
        }
        if (w.bits == 4) join_halves(q[o], numbers);
      });
      const int64_t units = numbers * w.bits / 16;  // of 16 bits
      for (int64_t u = 0; u < units; u += 8, to += 8 * PANEL)
        for (int64_t o = 0; o < PANEL; o += 8) {
          __m128i r[8];
          for (int i = 0; i < 8; i++) r[i] = _mm_loadu_si128(reinterpret_cast<const __m128i *>(q[o + i] + 2 * u));
          transpose8(r);
          for (int i = 0; i < 8; i++) _mm_storeu_si128(reinterpret_cast<__m128i *>(to + i * PANEL + o), r[i]);
        }
    }
  }

  // The scales of an output's numbers from `at` on, a block of the file.
  static void put_scales(const QuantPanel &w, const BlockFormat &f, const BlockScales &s, int64_t at, uint16_t *scale, int8_t *factor) {
    for (int64_t i = 0; i < f.values; i += w.block) {
      uint16_t *to = scale + (at + i) / w.block * w.kinds * PANEL;
      to[0] = s.scale;
      if (f.least) to[PANEL] = s.least;
      if (f.zero != 0) to[PANEL] = at::Half(-float(f.zero) * float(at::Half(s.scale, at::Half::from_bits()))).x;
    }
    for (int64_t i = 0; factor && i < f.values; i += w.group) {
      int8_t *to = factor + (at + i) / w.group * w.kinds * PANEL;
      to[0] = f.factors ? s.factor[i / f.group] : 1;
      if (has_least(f)) to[PANEL] = f.factors ? s.least_factor[i / f.group] : 1;
    }
  }

  // Numbers of 4 bits, whole blocks of them: the first pair of four in the low halves of two bytes, the other pair in the high ones.
  static void join_halves(int8_t *q, int64_t numbers) {
    const __m128i low = _mm_set1_epi32(0x0f0f);
    auto joined = [&](const int8_t *at) {  // as 16 bits with a sign
      const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i *>(at));
      const __m128i two = _mm_or_si128(_mm_and_si128(four, low), _mm_slli_epi32(_mm_and_si128(_mm_srli_epi32(four, 16), low), 4));
      return _mm_srai_epi32(_mm_slli_epi32(two, 16), 16);
    };
    for (int64_t i = 0; i < numbers; i += 32) {
      const __m128i two = _mm_packs_epi32(joined(q + i), joined(q + i + 16));
      _mm_storeu_si128(reinterpret_cast<__m128i *>(q + i / 2), two);
    }
  }
};

at::Tensor dense(const at::Tensor &t) {
  const char *base = static_cast<const char *>(t.const_data_ptr());
  QuantHead head;
  memcpy(&head, base, sizeof head);
  TORCH_CHECK(t.scalar_type() == at::kByte && head.magic == QuantHead::MAGIC, "quant: these bytes are no weight");
  const auto *panels = reinterpret_cast<const QuantPanel *>(base + sizeof head);
  const int64_t n = head.n, k = head.k;
  at::Tensor out = at::empty({n, k}, at::kBFloat16);
  auto *to = static_cast<at::BFloat16 *>(out.data_ptr());
  at::parallel_for(0, n, 16, [&](int64_t from, int64_t end) {
    for (int64_t r = from; r < end; r++) {
      const QuantPanel &w = panels[r / PANEL];
      const int64_t o = r % PANEL;
      const uint8_t *q = reinterpret_cast<const uint8_t *>(base + w.q);
      const auto *scale = reinterpret_cast<const at::Half *>(base + w.scale);
      const auto *factor = w.factor < 0 ? nullptr : reinterpret_cast<const int8_t *>(base + w.factor);
      auto step = [&](int64_t i, int64_t kind) {
        const float s = scale[(i / w.block * w.kinds + kind) * PANEL + o];
        return factor ? s * float(factor[(i / w.group * w.kinds + kind) * PANEL + o]) : s;
      };
      for (int64_t i = 0; i < k; i++) {
        const int v = w.bits == 8 ? int(int8_t(q[(i / 2 * PANEL + o) * 2 + i % 2]))
                                  : q[(i / 4 * PANEL + o) * 2 + i % 2] >> (i % 4 / 2 * 4) & 15;
        to[r * k + i] = step(i, 0) * float(v) + (w.kinds == 2 ? step(i, 1) : 0.f);
      }
    }
  });
  return out;
}

}  // namespace
}  // namespace agt

extern "C" {

int agt_quant_pack(agt_tensor *out, const agt_quant_part *parts, int n, char **err) {
  return agt::guarded(err, [&] {
    *out = reinterpret_cast<agt_tensor>(new at::Tensor(agt::Packer().pack(parts, n)));
  });
}

int agt_quant_dense(agt_tensor *out, agt_tensor packed, char **err) {
  return agt::guarded(err, [&] { *out = reinterpret_cast<agt_tensor>(new at::Tensor(agt::dense(*reinterpret_cast<at::Tensor *>(packed)))); });
}

int agt_quant_kernels(void) { return !agt::generic.load(std::memory_order_relaxed) && agt::kernels().quant_panel != nullptr; }

}  // extern "C"
