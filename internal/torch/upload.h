// Bytes of files on their way into libtorch's memory.
#pragma once
#include <ATen/ATen.h>

#include <functional>

#include "shim.h"

namespace agt {

int64_t total(const agt_bytes *parts, int n);

// Bytes in several places, one behind the other, as a tensor of bytes.
at::Tensor uploaded(const agt_bytes *parts, int n, at::Device device);

// The same of an array; undefined where it is null.
template <class S>
at::Tensor uploaded(const S *data, int64_t n, at::Device device) {
  if (!data) return at::Tensor();
  const agt_bytes part{data, n * int64_t(sizeof(S))};
  return uploaded(&part, 1, device);
}

// The same for a device, in pieces of whole units: f copies a piece from the host's pinned memory without waiting. Before it there
// were `from` bytes.
constexpr int64_t UPLOAD_PIECE = 16 << 20;  // the largest
void each_piece(const agt_bytes *parts, int n, int64_t unit, at::Device device, const std::function<void(const at::Tensor &piece, int64_t from)> &f);

// t's numbers as f writes them into t on the CPU, or into a tensor like t.
template <class F>
void on_host(at::Tensor &t, F f) {
  if (t.is_cpu()) return f(t);
  at::Tensor host = at::empty(t.sizes(), t.options().device(at::kCPU));
  f(host);
  t.copy_(host);
}

}  // namespace agt
