// Bytes of files on their way into libtorch's memory.
#pragma once
#include <ATen/ATen.h>

#include <functional>

#include "shim.h"

namespace agt {

int64_t total(const agt_bytes *parts, int n);

// Bytes in several places, one behind the other, as a tensor of bytes.
at::Tensor upload(const agt_bytes *parts, int n, at::Device device);

// The same of an array; undefined where it is null.
template <class S>
at::Tensor upload(const S *data, int64_t n, at::Device device) {
  if (!data) return at::Tensor();
  const agt_bytes part{data, n * int64_t(sizeof(S))};
  return upload(&part, 1, device);
}

// The same in pieces of whole units, in the host's pinned memory: f copies a piece to the device without waiting, and `from` says how
// many bytes come before the piece.
constexpr int64_t UPLOAD_PIECE = 16 << 20;  // bytes of a piece at most
void for_each_piece(const agt_bytes *parts, int n, int64_t unit, at::Device device,
                    const std::function<void(const at::Tensor &piece, int64_t from)> &f);

// f fills t, or where t is on a device a tensor like t on the CPU, which is copied to t.
template <class F>
void fill_on_host(at::Tensor &t, F f) {
  if (t.is_cpu()) return f(t);
  at::Tensor host = at::empty(t.sizes(), t.options().device(at::kCPU));
  f(host);
  t.copy_(host);
}

}  // namespace agt
