// Our kernels on a device (gpu_kernels.cu): what shim.cpp and attention.cpp call. Without
// them libtorch's own operations compute the same.
#pragma once
#include <ATen/ATen.h>

#include "gpu_args.h"

struct agt_sampling;

namespace agt {
struct Look;

namespace gpu {

// Call is one kernel on a grid of blocks. `used` are the tensors that it touches.
struct Call {
  const char *kernel;
  at::ScalarType type;  // float32 or bfloat16 chooses "<kernel>_f32" or "_bf16"; Undefined: the name as it is
  unsigned x, y, z, threads;
  const void *args;  // one structure of gpu_args.h
};
using Launch = void (*)(const Call &call, at::TensorList used);

void set_test_device(Launch l);  // how the tests' device runs a kernel; null: not at all

// have: x's device has our kernels, and they take x's type.
bool have(const at::Tensor &x);
// takes: besides, rows of n are read eight values at a time.
bool takes(const at::Tensor &x, int64_t n);

// y = norm(x) as RMSNorm in shim.cpp; with add, sum = x + add is normed.
at::Tensor rms_norm(const at::Tensor &x, const at::Tensor *add, const at::Tensor &w, at::Tensor *sum, double eps, double offset);

// A rotary embedding of each row: cos and sin [rows, half]; undefined: there is none.
struct Rotation {
  at::Tensor cos, sin;
};
// What heads are normed and rotated by; norms are undefined where there are none.
struct HeadRule {
  at::Tensor q_norm, k_norm;
  Rotation q, k;
  bool neighbours;  // are the pairs that are rotated
  double eps, offset;
};
// The queries of x [rows, heads + 2·kv_heads, dim], normed and rotated; keys and values go into the
// rows of the caches that slots [rows] name.
at::Tensor heads(const at::Tensor &x, const HeadRule &r, const at::Tensor &slots, at::Tensor &kpool, at::Tensor &vpool);

// Decoding is what a step's sequences of one new token need, on the device.
struct Decoding {
  at::Tensor numbers;      // int32 [n·(2 + width)]: rows of q, contexts, tables of blocks
  int64_t n, width;
  int64_t longest;         // positions of the longest context
};
void decode(const at::Tensor &q, const at::Tensor &kpool, const at::Tensor &vpool, const Decoding &d, Look look, at::Tensor &out);

void sample(const at::Tensor &logits, const agt_sampling *rows, int n, int32_t *ids, float *logprobs);

// Of logits [N, V]: lp, entropy and lse [N] in float32. scale may be undefined.
void head(const at::Tensor &logits, const at::Tensor &targets, const at::Tensor &scale, at::Tensor &lp, at::Tensor &entropy, at::Tensor &lse);
// logits become their gradient. ge may be undefined.
void head_gradient(at::Tensor &logits, const at::Tensor &targets, const at::Tensor &scale, const at::Tensor &lse, const at::Tensor &entropy,
                   const at::Tensor &g, const at::Tensor &ge);

}  // namespace gpu
}  // namespace agt
