// What device.cpp and attention.cpp share.
#pragma once
#include <ATen/ATen.h>
#include <torch/library.h>

#include <atomic>

namespace testdevice {

extern std::atomic<long> calls[6];  // see testdevice.h

// Open lets the host read and write a tensor of the device as long as it lives.
struct Open {
  explicit Open(const at::Tensor &t);
  ~Open();
  Open(const Open &) = delete;
  at::Tensor host;  // the same memory as a CPU tensor

 private:
  void *p_;
};

at::Tensor placed(const at::Tensor &t);  // a result of the host's on the device; no copy of the program's

void register_attention(torch::Library &aten);

}  // namespace testdevice
