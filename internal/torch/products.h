// Products of matrices outside the decoder: training's, and those of weights in no panels.
#pragma once
#include <ATen/ATen.h>

namespace agt {

// x [.., k] times the weight [n, k], plus bias [n], which may be undefined; with gradients.
at::Tensor linear(const at::Tensor &x, const at::Tensor &w, const at::Tensor &bias = {});

// w as a factor of several products, each of so many rows: in float32 where these products are widened.
at::Tensor factor(const at::Tensor &w, int64_t rows);

// a [m, k] times b [k, n] in a's type, without gradients. b may be from factor.
at::Tensor product(const at::Tensor &a, const at::Tensor &b);

}  // namespace agt
