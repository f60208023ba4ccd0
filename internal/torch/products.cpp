//go:build libtorch

// On a processor whose bfloat16 instructions are slow, or that has none, products of bfloat16 are computed in float32
// and rounded. The sums are in float32 either way.
#include "products.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "tensors.h"

namespace agt {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Of each dimension: with few rows reading and writing the other factor takes as long as the product.
constexpr int64_t LEAST = 128;

bool widens(const at::Tensor &x, int64_t m, int64_t k, int64_t n) {
  return native(x) && x.scalar_type() == at::kBFloat16 && kernels().b.widens && std::min({m, k, n}) >= LEAST;
}

at::Tensor wide(const at::Tensor &x) { return x.to(at::kFloat); }

// x [m, k] times w [n, k], plus bias, rounded once.
at::Tensor widened(const at::Tensor &x, const at::Tensor &w, const std::optional<at::Tensor> &bias) {
  const at::Tensor y = bias ? at::addmm(wide(*bias), wide(x), wide(w).t()) : at::mm(wide(x), wide(w).t());
  return y.to(x.scalar_type());
}

struct WidenedLinear : torch::autograd::Function<WidenedLinear> {
  static at::Tensor forward(AutogradContext *ctx, const at::Tensor &x, const at::Tensor &w, const std::optional<at::Tensor> &bias) {
    ctx->save_for_backward({x, w});
    ctx->saved_data["biased"] = bias.has_value();
    return widened(x, w, bias);
  }
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor dy = wide(grads[0]);
    variable_list out(3);
    if (ctx->needs_input_grad(0)) out[0] = at::mm(dy, wide(saved[1])).to(saved[0].scalar_type());
    if (ctx->needs_input_grad(1)) out[1] = at::mm(dy.t(), wide(saved[0])).to(saved[1].scalar_type());
    if (ctx->saved_data["biased"].toBool() && ctx->needs_input_grad(2)) out[2] = dy.sum(0).to(saved[1].scalar_type());
    return out;
  }
};

}  // namespace

at::Tensor linear(const at::Tensor &x, const at::Tensor &w, const at::Tensor &bias) {
  const int64_t k = w.size(1), m = x.numel() / std::max<int64_t>(k, 1);
  const auto b = maybe(bias);
  if (w.scalar_type() != x.scalar_type() || !widens(x, m, k, w.size(0))) return at::linear(x, w, b);
  const at::Tensor rows = x.reshape({m, k});
  auto shape = x.sizes().vec();
  shape.back() = w.size(0);
  return (at::GradMode::is_enabled() ? WidenedLinear::apply(rows, w, b) : widened(rows, w, b)).view(shape);
}

at::Tensor factor(const at::Tensor &w, int64_t rows) { return widens(w, rows, w.size(0), w.size(1)) ? wide(w) : w; }

at::Tensor product(const at::Tensor &a, const at::Tensor &b) {
  const bool made = a.scalar_type() == at::kBFloat16 && b.scalar_type() == at::kFloat;  // by factor
  if (!made && (a.scalar_type() != b.scalar_type() || !widens(a, a.size(0), a.size(1), b.size(1)))) return at::mm(a, b);
  return at::mm(wide(a), wide(b)).to(a.scalar_type());
}

}  // namespace agt
