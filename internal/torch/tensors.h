// What the files that take tensors from Go share.
#pragma once
#include <ATen/ATen.h>

#include <atomic>
#include <cmath>
#include <vector>

#include "gpu.h"
#include "kernels.h"

namespace agt {

// The tensor of a handle of shim.h; undefined where the handle is null.
inline at::Tensor tensor_of(void *t) { return t ? *static_cast<at::Tensor *>(t) : at::Tensor(); }

constexpr int kTestDevice = -2;  // the numbers of torch.Device
inline at::Device device_of(int d) {
  if (d == kTestDevice) return at::Device(at::kPrivateUse1, 0);
  return d < 0 ? at::Device(at::kCPU) : at::Device(at::kCUDA, d);
}

inline at::ScalarType acc_type(at::ScalarType t) { return t == at::kDouble ? at::kDouble : at::kFloat; }

extern std::atomic<bool> generic;

// native: our CPU kernels compute x. Otherwise what libtorch has for x's device does,
// as it does on CUDA; the kernels "none" take that way on a CPU too.
inline bool native(const at::Tensor &x) { return x.is_cpu() && !generic.load(std::memory_order_relaxed); }

// dispatch runs f(table, typed zero, typed zero of the accumulation type) for x's
// dtype: one place for the three types.
template <class F>
void dispatch(const at::Tensor &x, const char *what, F f) {
  switch (x.scalar_type()) {
    case at::kBFloat16: return f(kernels().b, bf16{}, float{});
    case at::kFloat: return f(kernels().f, float{}, float{});
    case at::kDouble: return f(kernels().d, double{}, double{});
    default: TORCH_CHECK(false, what, ": dtype ", x.scalar_type(), " is not float64, float32 or bfloat16");
  }
}
template <class S>
const S *in(const at::Tensor &t) { return static_cast<const S *>(t.const_data_ptr()); }
template <class S>
S *out_ptr(at::Tensor &t) { return static_cast<S *>(t.data_ptr()); }

// Look is how a layer's tokens see each other.
struct Look {
  int64_t window;  // > 0: how many positions a token sees, its own included
  double scale;    // of the products of q and k; 0 is 1/√dim
  at::Tensor sinks{};  // [Hq] in the accumulation type: logits that take part in the softmax and give nothing; undefined: none

  double scale_of(const at::Tensor &q) const { return scale != 0 ? scale : 1 / std::sqrt(double(q.size(2))); }
};

inline std::optional<at::Tensor> maybe(const at::Tensor &t) { return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt; }

// What sinks change of attention without them, whose lse [T, Hq] is the log of a row's sum:
// a share of the weight goes to the sink, and the sum has it. Backward of the attention
// alone, with both as they are then, gives the gradients of q, k and v: dS = P·(dP − D) with
// D = Σ dO·O holds for P and O of the whole softmax, and the sink's own value is 0.
struct Sunk {
  at::Tensor out, lse;
  Sunk(const at::Tensor &out0, const at::Tensor &lse0, const at::Tensor &sinks)
      : out((out0 * at::sigmoid(lse0 - sinks).unsqueeze(-1)).to(out0.scalar_type())), lse(at::logaddexp(lse0, sinks)) {}
};
// The gradient of the sinks: −Σ exp(sink − lse)·D over the rows.
inline at::Tensor sinks_gradient(const at::Tensor &sinks, const at::Tensor &lse, const at::Tensor &out, const at::Tensor &dout) {
  auto acc = sinks.scalar_type();
  return ((sinks - lse).exp() * (out.to(acc) * dout.to(acc)).sum(-1)).sum(0).neg();
}

// q [T, Hq, D], k and v [T, Hkv, D], on a CPU in float32 or bfloat16, D a multiple of
// 8: attention over a packed tree (nodes: triples of start, length and parent, checked
// by the caller), and its gradient.
at::Tensor tree_kernel(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const int32_t *nodes, int n, Look look);

// Spans are the sequences of one call of attention. Sequence i has rows
// cu_q[i]..cu_q[i+1] of q, the last positions of its context, which is rows
// gather[cu_k[i]]..gather[cu_k[i+1]-1] of k and v.
struct Spans {
  at::Tensor gather;          // int64 [K] beside k; undefined: rows of k and v in order
  at::Tensor cu_q, cu_k;      // int32 [n+1] beside q
  at::Tensor host_q, host_k;  // the same on the CPU
  int64_t max_q, max_k;       // the longest sequence's rows
};

// PagedStep is what a step adds to the cache: n quadruples of first row, rows,
// context with these rows, first of its blocks. The caller has checked it.
struct PagedStep {
  const int32_t *segs;
  int n;
  const int32_t *blocks;
  std::optional<gpu::Decoding> decoding;  // of the segments of one row, where our kernels are on the device
  at::Tensor prompts;                     // int64: with decoding, the rows of the others, which the spans describe
};

bool fused(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v);  // our CPU kernels do the attention

// Causal attention of q [T, Hq, D] to k and v [N, Hkv, D]. Records for backward.
at::Tensor varlen_attention(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const Spans &s, Look look);
// The new k and v go to the rows `slots` (int64 [T]) of the pools [blocks, size, Hkv, D];
// spans name the pools' rows, and are null where fused() holds and where all are decoded.
at::Tensor cached_attention(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, at::Tensor &kpool, at::Tensor &vpool,
                            const at::Tensor &slots, const PagedStep &p, Look look, const Spans *spans);
// nodes: n triples of start, length and parent. spans null: as above.
at::Tensor tree_attention(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const int32_t *nodes, int n,
                          Look look, const Spans *spans);

// Kept are the states of a recurrent layer that outlive a step: those of slots `from` begin
// the runs that continue none of the step, in order, and the states after some go to the
// slots `into`. An undefined pool: nothing is kept, and runs begin with zeros.
struct Kept {
  at::Tensor pool;        // [slots, …]
  at::Tensor from, into;  // int64
  at::Tensor last;        // int64: causal_conv: rows of x and then of the states; gated_delta: chunks
};
// Chunks are the tokens of runs, `size` at most in each, ordered by level: a chunk continues
// one of the level before.
struct Chunks {
  int64_t size, count;
  std::vector<int64_t> levels;  // the first chunk of each, and count
  at::Tensor place;             // int64 [T]: where each token is in [count·size]
  at::Tensor parents;           // int64 [count]: which chunk of the level before
};
struct DeltaHeads {
  int64_t key_heads, value_heads, key_dim, value_dim;
};
// DeltaRuns are the runs themselves: quadruples of start, length, parent (an earlier run, or −1) and
// slot of the state before it, and pairs of a run and the slot that the state after it goes to.
struct DeltaRuns {
  const int32_t *runs;
  int64_t n;
  const int32_t *saves;
  int64_t n_saves;
};
// A convolution of each channel of x [T, C] over the tokens before: weight [C, 1, K], bias [C]
// or undefined, then SiLU where it is activated; index int64 [(K−1)·T] are the rows, of x and then of the states kept (without
// any: of one zero), K−1 to 1 tokens before. Records for backward.
at::Tensor causal_conv(const at::Tensor &x, const at::Tensor &weight, const at::Tensor &bias, bool activated, const at::Tensor &index,
                       const Kept &kept);
// The gated delta rule: the chunks are not read where delta_fused holds. qkv [T, 2·key heads·key dim + value heads·value dim], b and a [T, value
// heads] → [T, value heads·value dim]. Records for backward.
at::Tensor gated_delta(const at::Tensor &qkv, const at::Tensor &b, const at::Tensor &a, const at::Tensor &a_log, const at::Tensor &dt_bias,
                       const DeltaHeads &h, const DeltaRuns &runs, const Chunks &c, const Kept &kept);
// The same by our CPU kernels, where delta_fused holds. pool: of the states, or undefined.
bool delta_fused(const at::Tensor &qkv);
at::Tensor delta_kernel(const at::Tensor &qkv, const at::Tensor &b, const at::Tensor &a, const at::Tensor &a_log, const at::Tensor &dt_bias,
                        const DeltaHeads &h, const DeltaRuns &runs, const at::Tensor &pool);
// RMSNorm over the last dimension of x, times silu(gate).
at::Tensor gated_rms_norm(const at::Tensor &x, const at::Tensor &w, const at::Tensor &gate, double eps);
// q, k and v [T, H, D]: each row sees the rows of its block, n blocks of the given lengths.
at::Tensor block_attention(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const int64_t *lengths, int n);

}  // namespace agt
