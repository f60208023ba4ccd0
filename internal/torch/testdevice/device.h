// What device.cpp, attention.cpp, graph.cpp and kernels.cpp share.
#pragma once
#include <ATen/ATen.h>
#include <torch/library.h>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "../gpu.h"

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

// Place is where a tensor is. It does not keep it there, as a CUDA graph does not: `at` of memory that was given back is an error.
class Place {
 public:
  explicit Place(const at::Tensor &t);
  at::Tensor at() const;

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  std::vector<int64_t> sizes_, strides_;
  int64_t offset_;
  caffe2::TypeMeta type_;
};

// The steps that this thread records in place of making them (graph.cpp): kernels, operations and copies. Null: it makes them.
extern thread_local std::vector<std::function<void()>> *recording;

at::Tensor placed(const at::Tensor &t);  // a result of the host's on the device; no copy of the program's

void register_attention(torch::Library &aten);

// An operation on the stack, which is made, or recorded.
void fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack);
void record_operation(const c10::OperatorHandle &op, torch::jit::Stack *stack);
std::unique_ptr<agt::gpu::Graph> record(at::Device device, const std::function<void()> &work);

}  // namespace testdevice
