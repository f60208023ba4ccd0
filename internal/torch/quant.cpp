//go:build libtorch

// Weights as a GGUF has them, put into panels for quant_panel, and back into a matrix.
#include "quant.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "guard.h"
#include "shim.h"
#include "tensors.h"

namespace agt {
namespace {

constexpr int64_t PANEL = 64;

// What a panel's numbers take: all of its outputs have them in one form.
struct Form {
  int64_t group = 32, block = 256, bits = 4, kinds = 1;
  bool factors = false;
  void take(const agt_quant_part &p) {
    group = std::min<int64_t>(group, p.group);
    block = std::min<int64_t>(block, p.block);
    bits = std::max<int64_t>(bits, p.bits);
    kinds = std::max<int64_t>(kinds, p.least ? 2 : 1);
    factors = factors || p.factor;
  }
};

struct Packer {
  const agt_quant_part *parts;
  int n_parts;
  int64_t n = 0, k = 0;

  // f(output within the panel, its part, its row there)
  template <class F>
  void each(int64_t panel, F f) const {
    int64_t first = 0;
    for (int i = 0; i < n_parts; first += parts[i++].rows) {
      const int64_t from = std::max(first, panel * PANEL), to = std::min(first + parts[i].rows, (panel + 1) * PANEL);
      for (int64_t o = from; o < to; o++) f(o - panel * PANEL, parts[i], o - first);
    }
  }

  at::Tensor pack() {
    k = parts[0].cols;
    for (int i = 0; i < n_parts; i++) {
      TORCH_CHECK(parts[i].cols == k && k % 32 == 0 && k > 0, "quant: rows of ", parts[i].cols, " numbers beside rows of ", k);
      TORCH_CHECK((parts[i].group == 16 || parts[i].group == 32) && (parts[i].bits == 4 || parts[i].bits == 8), "quant: groups of ",
                  parts[i].group, " numbers of ", parts[i].bits, " bits");
      TORCH_CHECK((parts[i].block == 32 || parts[i].block == 256) && k % parts[i].block == 0, "quant: blocks of ", parts[i].block,
                  " numbers in rows of ", k);
      n += parts[i].rows;
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
      Form f;
      each(p, [&](int64_t, const agt_quant_part &part, int64_t) { f.take(part); });
      QuantPanel &to = panels[p];
      to.group = f.group;
      to.block = f.block;
      to.bits = f.bits;
      to.kinds = f.kinds;
      to.q = place(k * PANEL * f.bits / 8);
      to.scale = place(k / f.block * f.kinds * PANEL * 2);
      to.factor = f.factors ? place(k / f.group * f.kinds * PANEL) : -1;
    }
    at::Tensor out = at::zeros({at}, at::kByte);
    char *base = static_cast<char *>(out.data_ptr());
    const QuantHead head{QuantHead::MAGIC, n, k};
    memcpy(base, &head, sizeof head);
    memcpy(base + sizeof head, panels.data(), count * sizeof(QuantPanel));
    at::parallel_for(0, count, 1, [&](int64_t from, int64_t to) {
      for (int64_t p = from; p < to; p++) fill(panels[p], p, base);
    });
    return out;
  }

  void fill(const QuantPanel &w, int64_t p, char *base) const {
    uint8_t *q = reinterpret_cast<uint8_t *>(base + w.q);
    uint16_t *scale = reinterpret_cast<uint16_t *>(base + w.scale);
    int8_t *factor = w.factor < 0 ? nullptr : reinterpret_cast<int8_t *>(base + w.factor);
    each(p, [&](int64_t o, const agt_quant_part &part, int64_t row) {
      const int8_t *from = part.q + row * k;
      for (int64_t i = 0; i < k; i++) {
        if (w.bits == 8) q[(i / 2 * PANEL + o) * 2 + i % 2] = uint8_t(from[i]);
        else q[(i / 4 * PANEL + o) * 2 + i % 2] |= uint8_t(from[i] << (i % 4 / 2 * 4));
      }
      for (int64_t b = 0; b < k / w.block; b++) {
        const int64_t of = row * (k / part.block) + b * w.block / part.block;
        scale[b * w.kinds * PANEL + o] = part.scale[of];
        if (part.least) scale[(b * w.kinds + 1) * PANEL + o] = part.least[of];
      }
      for (int64_t g = 0; factor && g < k / w.group; g++) {
        const int64_t of = row * (k / part.group) + g * w.group / part.group;
        factor[g * w.kinds * PANEL + o] = part.factor ? part.factor[of] : 1;
        if (part.least) factor[(g * w.kinds + 1) * PANEL + o] = part.least_factor ? part.least_factor[of] : 1;
      }
    });
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
    agt::Packer p{parts, n};
    *out = reinterpret_cast<agt_tensor>(new at::Tensor(p.pack()));
  });
}

int agt_quant_dense(agt_tensor *out, agt_tensor packed, char **err) {
  return agt::guarded(err, [&] { *out = reinterpret_cast<agt_tensor>(new at::Tensor(agt::dense(*reinterpret_cast<at::Tensor *>(packed)))); });
}

int agt_quant_kernels(void) { return !agt::generic.load(std::memory_order_relaxed) && agt::kernels().quant_panel != nullptr; }

}  // extern "C"
