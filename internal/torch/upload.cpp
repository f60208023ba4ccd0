//go:build libtorch

#include "upload.h"

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace agt {
namespace {

// The bytes from..end-1 of the parts. A file's pages are read by whoever touches them first: by all threads.
void copy(const agt_bytes *parts, int n, int64_t from, int64_t end, char *to) {
  for (int64_t first = 0; n > 0; first += parts->n, parts++, n--) {
    const int64_t begin = std::max(from, first) - first, stop = std::min(end, first + parts->n) - first;
    const char *data = static_cast<const char *>(parts->data);
    char *dst = to + first - from;
    at::parallel_for(begin, std::max(begin, stop), 1 << 20, [&](int64_t i, int64_t j) { memcpy(dst + i, data + i, size_t(j - i)); });
  }
}

}  // namespace

int64_t total(const agt_bytes *parts, int n) {
  int64_t bytes = 0;
  for (int i = 0; i < n; i++) bytes += parts[i].n;
  return bytes;
}

at::Tensor upload(const agt_bytes *parts, int n, at::Device device) {
  const int64_t bytes = total(parts, n);
  at::Tensor to = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  if (device.is_cpu())
    copy(parts, n, 0, bytes, static_cast<char *>(to.data_ptr()));
  else
    for_each_piece(parts, n, 1, device, [&](const at::Tensor &piece, int64_t from) { to.narrow(0, from, piece.numel()).copy_(piece, true); });
  return to;
}

// There are two pieces of memory: one is filled while the device copies the other.
void for_each_piece(const agt_bytes *parts, int n, int64_t unit, at::Device device, const std::function<void(const at::Tensor &, int64_t)> &f) {
  const c10::OptionalDeviceGuard guard(device);  // an event leaves the thread on the device on which it was
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  const int64_t bytes = total(parts, n), most = std::max<int64_t>(1, UPLOAD_PIECE / unit) * unit;
  at::Tensor pieces[2];
  std::optional<c10::Event> copied[2];
  for (int64_t from = 0, i = 0; from < bytes; from += most, i = 1 - i) {
    const int64_t m = std::min(most, bytes - from);
    if (copied[i]) {
      copied[i]->synchronize();
    } else {
      pieces[i] = at::empty({m}, at::TensorOptions().dtype(at::kByte).pinned_memory(device.is_cuda()));
      copied[i].emplace(device.type());
    }
    copy(parts, n, from, from + m, static_cast<char *>(pieces[i].data_ptr()));
    f(pieces[i].narrow(0, 0, m), from);
    copied[i]->record(stream);
  }
}

}  // namespace agt
