//go:build libtorch

#include "own_panels.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "shim.h"
#include "tensors.h"

namespace agt {
namespace {

constexpr int64_t PANEL = 64, ROWS = 48;  // outputs of a panel; rows that are multiplied at a time

template <class S>
at::Tensor linear(const at::Tensor &x, const PanelHead &w, const at::Tensor &bias, const Typed<S, float> &kn) {
  const int64_t rows = x.numel() / w.k, panels = (w.n + PANEL - 1) / PANEL;
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = w.n;
  at::Tensor out = at::empty(shape, x.options());
  const at::Tensor added = bias.defined() ? bias.to(at::kFloat).contiguous() : at::Tensor();
  const S *data = reinterpret_cast<const S *>(&w + 1), *from = in<S>(x);
  S *to = out_ptr<S>(out);
  const float *b = added.defined() ? added.const_data_ptr<float>() : nullptr;
  at::parallel_for(0, panels, 1, [&](int64_t first, int64_t end) {
    std::vector<float> sums(ROWS * PANEL);
    for (int64_t p = first; p < end; p++)
      for (int64_t r0 = 0; r0 < rows; r0 += ROWS) {
        const int64_t n = std::min(ROWS, rows - r0), wide = std::min(PANEL, w.n - p * PANEL);
        kn.panel(from + r0 * w.k, w.k, n, data + p * w.stride(), w.k, sums.data(), p + 1 < end ? data + (p + 1) * w.stride() : nullptr);
        for (int64_t r = 0; r < n; r++) kn.round_row(&sums[r * PANEL], b ? b + p * PANEL : nullptr, wide, to + (r0 + r) * w.n + p * PANEL);
      }
  });
  return out;
}

}  // namespace

bool takes_own_panels(const at::Tensor &w) {
  return native(w) && w.dim() == 2 && w.size(1) % 2 == 0 && agt_own_panels(int(w.scalar_type()));
}

at::Tensor own_panels(const at::Tensor &w) {
  const at::Tensor plain = w.contiguous();
  const PanelHead head{PanelHead::MAGIC, w.size(0), w.size(1), int64_t(w.element_size()), {}};
  const int64_t units = head.k * head.size / 4, panels = (head.n + PANEL - 1) / PANEL;  // of 4 bytes, of a row
  at::Tensor out = at::empty({int64_t(sizeof head) + panels * units * PANEL * 4}, at::kByte);
  char *base = static_cast<char *>(out.data_ptr());
  memcpy(base, &head, sizeof head);
  const auto *from = static_cast<const uint32_t *>(plain.const_data_ptr());
  auto *to = reinterpret_cast<uint32_t *>(base + sizeof head);
  at::parallel_for(0, panels, 1, [&](int64_t first, int64_t end) {
    constexpr int64_t BLOCK = 16;  // a line of the cache of each row
    for (int64_t p = first; p < end; p++)
      for (int64_t i0 = 0; i0 < units; i0 += BLOCK)
        for (int64_t o = 0; o < PANEL; o++) {
          const int64_t row = p * PANEL + o;
          for (int64_t i = i0; i < std::min(i0 + BLOCK, units); i++)
            to[(p * units + i) * PANEL + o] = row < head.n ? from[row * units + i] : 0;
        }
  });
  return out;
}

const PanelHead *own_head(const at::Tensor &packed) {
  if (!packed.defined() || packed.is_mkldnn() || !packed.is_cpu() || packed.scalar_type() != at::kByte || packed.numel() < int64_t(sizeof(PanelHead)))
    return nullptr;
  const auto *head = static_cast<const PanelHead *>(packed.const_data_ptr());
  return head->magic == PanelHead::MAGIC ? head : nullptr;
}

at::Tensor own_linear(const at::Tensor &x, const PanelHead &w, const at::Tensor &bias) {
  TORCH_CHECK(x.dim() > 0 && x.size(-1) == w.k, "x is ", x.sizes(), ", the weight is [", w.n, ", ", w.k,
              "]; x's last dimension must equal the weight's second");
  const at::ScalarType type = w.size == 4 ? at::kFloat : at::kBFloat16;
  TORCH_CHECK(x.scalar_type() == type, "x is ", x.scalar_type(), ", the weight is ", type);
  if (w.size == 4) return linear<float>(x, w, bias, kernels().f);
  return linear<bf16>(x, w, bias, kernels().b);
}

}  // namespace agt

extern "C" int agt_own_panels(int dtype) {
  if (agt::generic.load(std::memory_order_relaxed)) return 0;
  const at::ScalarType type = at::ScalarType(dtype);
  return type == at::kFloat ? agt::kernels().f.own_panels : type == at::kBFloat16 && agt::kernels().b.own_panels;
}
