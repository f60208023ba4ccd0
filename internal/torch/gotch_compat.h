// Declarations that gotch v0.9.1 (written for libtorch 2.1) calls and libtorch
// 2.11 no longer has in this form. Each throws: nothing of ours calls them.
#ifdef __cplusplus
#pragma once
#include <ATen/ATen.h>
#include <stdexcept>
#include <tuple>
namespace at {
inline Tensor _cslt_sparse_mm(const Tensor &, const Tensor &, const std::optional<Tensor> &, bool) {
  throw std::runtime_error("_cslt_sparse_mm: not in libtorch 2.11 in this form");
}
inline std::tuple<Tensor, Tensor> _scaled_mm(const Tensor &, const Tensor &, const std::optional<Tensor> &,
    std::optional<ScalarType>, const std::optional<Tensor> &, const std::optional<Tensor> &, const std::optional<Tensor> &) {
  throw std::runtime_error("_scaled_mm: not in libtorch 2.11 in this form");
}
inline std::tuple<Tensor, Tensor> _scaled_mm_out(Tensor &, Tensor &, const Tensor &, const Tensor &,
    const std::optional<Tensor> &, std::optional<ScalarType>, const std::optional<Tensor> &, const std::optional<Tensor> &,
    const std::optional<Tensor> &) {
  throw std::runtime_error("_scaled_mm_out: not in libtorch 2.11 in this form");
}
}  // namespace at
#endif
