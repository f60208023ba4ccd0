// Our kernels on a device (gpu_kernels.cu): what shim.cpp and attention.cpp call. Without
// them libtorch's own operations compute the same.
#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <memory>

#include "gpu_args.h"
#include "shim.h"

namespace agt {
struct Look;
struct BlockFormat;

namespace gpu {

// Call is one kernel on a grid of blocks. `used` are the tensors that it touches.
struct Call {
  const char *kernel;
  at::ScalarType type;  // float32 or bfloat16 chooses "<kernel>_f32" or "_bf16"; Undefined: the name as it is
  unsigned x, y, z, threads;
  const void *args;  // one structure of gpu_args.h
};
using Launch = void (*)(const Call &call, at::TensorList used);

// Graph is work on a device that was recorded and is launched as a whole. What it works on must stay where it was, and
// nothing in it may ask for memory.
struct Graph {
  virtual ~Graph() = default;
  virtual void launch() const = 0;  // behind what the device's stream has
};
// Record runs the work once, behind what the device's stream has, waits for it, and then records it without running it.
// Null: there is no memory for a graph.
using Record = std::unique_ptr<Graph> (*)(at::Device device, const std::function<void()> &work);

// How each kind of device runs and records kernels; null: not at all.
void set_cuda(Launch l, Record r);
void set_test_device(Launch l, Record r);
std::unique_ptr<Graph> record(at::Device device, const std::function<void()> &work);
// Waits for what the device's stream has. The whole device is not waited for: CUDA refuses that while another thread records.
void wait(at::Device device);
bool loaded(int device);  // our kernels are, on a CUDA device (gpu_cuda.cpp)

// have: x's device has our kernels, and they take x's type.
bool have(const at::Tensor &x);
// takes: besides, rows of n are read eight values at a time.
bool takes(const at::Tensor &x, int64_t n);

// y = norm(x) as RMSNorm in shim.cpp; with add, sum = x + add is normed. y may be x, and sum may be x.
struct Rms {
  double eps, offset;
};
void rms_norm(const at::Tensor &x, const at::Tensor *add, const at::Tensor &w, at::Tensor *sum, Rms r, at::Tensor &y);

// The columns from..from+n−1 of x [rows, wide] are normed by w [n], in place.
void norm_columns(at::Tensor &x, int64_t from, const at::Tensor &w, Rms r);

// y [rows, n] = the rows `ids` (int32) of table [V, n], times scale.
void embed(const at::Tensor &table, const at::Tensor &ids, double scale, at::Tensor &y);
// y [rows, n] = act(g)·u of x = [g, u]; act is SiLU, or GELU by tanh.
void gate(const at::Tensor &x, bool gelu, at::Tensor &y);
// y [rows, n] = act(g)·u, where u is n columns of a tensor [rows, w].
void gate_columns(const at::Tensor &g, const at::Tensor &u, int64_t from, bool gelu, at::Tensor &y);

// The gradients of x and w of rms_norm, where x's rows are not too long for it.
bool takes_norm_gradient(const at::Tensor &x, int64_t n);
at::Tensor rms_norm_gradient(const at::Tensor &x, const at::Tensor &w, const at::Tensor &g, Rms r, at::Tensor &dx);
// The gradient dx of x of gate with SiLU.
void gate_gradient(const at::Tensor &x, const at::Tensor &g, at::Tensor &dx);
// y = the heads x [rows, heads, dim] turned as Rope in shim.cpp; cos and sin [rows, half].
void turn(const at::Tensor &x, const at::Tensor &cos, const at::Tensor &sin, bool neighbours, double sign, at::Tensor &y);

// y [rows, n] = h·Wᵀ + bias of W [n, k], for rows that takes_few takes; h is x [rows, k], or with a
// norm what rms_norm gives, where sum is not x. gated: y [rows, n/2] = silu(first half)·second half.
bool takes_few(int64_t rows, int64_t k, int64_t n, at::ScalarType type);
void product(const at::Tensor &x, const at::Tensor *add, const at::Tensor &norm, Rms r, const at::Tensor &w, const at::Tensor &bias, bool gated,
             at::Tensor *sum, at::Tensor &y);

// A rotary embedding: cos and sin [rows, half], or [positions, half] where HeadRule has positions;
// undefined: there is none.
struct Rotation {
  at::Tensor cos, sin;
};
// What heads are normed and rotated by; norms are undefined where there are none.
struct HeadRule {
  at::Tensor bias;  // [heads + 2·kv_heads, dim]: added first; undefined: there is none
  at::Tensor q_norm, k_norm;
  Rotation q, k;
  at::Tensor positions;  // int32 [rows]; undefined: a rotation has a row for each
  bool neighbours;  // are the pairs that are rotated
  double eps, offset;
  bool gated = false;  // each head of queries is followed by its gate
  bool shared = false, keys_are_values = false, value_norm = false;  // as in Heads of gpu_args.h
};
// q [rows, heads, dim] = the queries of x [rows, heads + 2·kv_heads, dim], normed and rotated; keys and values go into the
// rows of the caches that slots [rows] name; −1: into none.
void heads(const at::Tensor &x, const HeadRule &r, const at::Tensor &slots, at::Tensor &kpool, at::Tensor &vpool, at::Tensor &q);

// The slots of rows in the pools of recurrent layers, int32 [rows]: −1: the row is padding; and those that get a copy; 0: none.
struct StateSlots {
  at::Tensor own, copies;
};
// y [rows, channels] = silu(conv(the first columns of x [rows, n])), or gated C·conv(B·x) of x's thirds; w [channels, 1, taps], windows
// [slots, taps − 1, channels].
void conv_step(const at::Tensor &x, const at::Tensor &w, const at::Tensor &bias, bool gated, at::Tensor &windows, const StateSlots &slots,
               at::Tensor &y);
// y = silu(z)·norm(the gated delta rule of qkv). The columns of x [rows, n] behind qkv's are z, and the logits of strengths and decays. rate
// and dt_bias: float32 [value heads]; states float32 [slots, value heads, key dim, value dim].
struct DeltaRule {
  at::Tensor rate, dt_bias, norm;
  agt_delta_heads heads;
  double eps;
};
void delta_step(const at::Tensor &qkv, const at::Tensor &x, const DeltaRule &r, at::Tensor &states, const StateSlots &slots, at::Tensor &y);
// y [rows, heads, dim] is times the sigmoid of the gates in x [rows, n], whose rows begin with each head's queries and its gate.
void gate_heads(at::Tensor &y, const at::Tensor &x);

// Decoding is what a step's sequences of one new token need, int32 and on the device.
struct Decoding {
  at::Tensor width;           // [1]: of the table
  at::Tensor rows, contexts;  // [n]: rows of q, and how many positions each sees
  at::Tensor table;           // [n · width]: blocks of the cache
  int64_t longest;            // no context has more positions
};
// The numbers that decoding rows of queries needs beside its arguments.
int64_t decode_parts(int64_t rows, int64_t heads, int64_t dim, int64_t longest, int64_t window);
// parts: float32 [decode_parts].
void decode(const at::Tensor &q, const at::Tensor &kpool, const at::Tensor &vpool, const Decoding &d, Look look, at::Tensor &parts, at::Tensor &out);

// The experts of rows: ids int32 [rows, active], −1: none, and their shares in float32; the pairs of a row and an expert in the
// order of the experts (OrderExperts), int32 as well.
struct RowExperts {
  at::Tensor ids, shares, first, used, order;
  RowExperts() = default;
  RowExperts(int64_t rows, int64_t active, int64_t experts, at::Device device);
  int64_t experts() const { return first.numel() - 1; }
};
// Whether our kernels compute experts of rows x: what they take, and not so many rows that others are faster.
bool takes_experts(const at::Tensor &x, int64_t experts, int64_t active, int64_t size);
bool takes_choice(const at::Tensor &logits, const agt_router &how);
// ids and shares by a router's logits. Where they are defined: correction and factors, float32 [experts], are added for the choice and
// multiply shares; contexts is int32 [rows], and a row with 0 has no experts.
struct Choosing {
  at::Tensor correction, factors, contexts;
  agt_router how;
  bool round;  // shares, to bfloat16
};
void choose_experts(const at::Tensor &logits, const Choosing &c, RowExperts &to);
void order_experts(RowExperts &of);
// The matrices of experts and their biases [experts, n], or none: w [experts, n, k], by columns [experts, k, n].
struct ExpertWeights {
  at::Tensor w, bias;
  bool columns;
  ExpertGating gating;
  double alpha, limit;
};
// y [pairs, n], or gated [pairs, n/2], of x [pairs / pairs_per_row, k].
void expert_product(const at::Tensor &x, int64_t pairs_per_row, const ExpertWeights &w, const RowExperts &of, at::Tensor &y);
// y [rows, n] = Σ share·x [rows·active, n], and beside [rows, n], times the sigmoid of gate [rows, 1], where they are defined.
void sum_experts(const at::Tensor &x, const RowExperts &of, const at::Tensor &beside, const at::Tensor &gate, at::Tensor &y);
// y of rows x [T, h] whose experts and shares are given: ids int64 and weights [T, active].
at::Tensor experts(const at::Tensor &x, const at::Tensor &ids, const at::Tensor &weights, const ExpertWeights &inner,
                   const ExpertWeights &outer);

// drawn: float32 [2, n], the ids' bits and the log-probs; rows: agt_sampling of each, in bytes; parts:
// float64 [sample_parts].
int64_t sample_parts(int64_t rows, int64_t vocabulary);
void sample(const at::Tensor &logits, const at::Tensor &rows, at::Tensor &parts, at::Tensor &drawn);
void sample(const at::Tensor &logits, const agt_sampling *rows, int n, int32_t *ids, float *logprobs);

// Of logits [N, V]: lp, entropy and lse [N] in float32. scale may be undefined.
void head(const at::Tensor &logits, const at::Tensor &targets, const at::Tensor &scale, at::Tensor &lp, at::Tensor &entropy, at::Tensor &lse);
// logits become their gradient. ge may be undefined.
void head_gradient(at::Tensor &logits, const at::Tensor &targets, const at::Tensor &scale, const at::Tensor &lse, const at::Tensor &entropy,
                   const at::Tensor &g, const at::Tensor &ge);

// y, in float32 or bfloat16, becomes the numbers of blocks in the host's memory.
void dequantise_blocks(const BlockFormat &f, const agt_bytes *parts, int n, at::Tensor &y);
// The same of matrices of codes.
void dequantise_codes(const agt_codes &c, at::Tensor &y);

}  // namespace gpu
}  // namespace agt
