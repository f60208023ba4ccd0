// CPU kernels that libtorch has no fused form of, compiled once for each
// instruction set and chosen when the program starts. No ATen here: an inline
// function of ATen compiled with AVX-512 could be picked by the linker for all.
#pragma once
#include <stdint.h>

#include <algorithm>

struct agt_sampling;

namespace agt {

struct bf16 {
  uint16_t bits;
};
static_assert(sizeof(bf16) == 2, "bits alone");

// Paged: one new token of one kv head against its context. Positions
// first..ctx-1 are seen; blocks lists the pool blocks of the sequence.
struct PagedArgs {
  const int32_t *blocks;
  int64_t block_size, kv_heads, head, group, dim, first, ctx;
  double scale;
  const float *sinks;  // of the group, or null: logits that only the sum sees
};

// The last len tokens of a context against all of it, for one kv head. Each pair
// of a token and a query head of the group is a column, numbered token first;
// the call computes columns first_col..first_col+cols-1, at most PREFILL_COLS.
constexpr int PREFILL_COLS = 64;
struct PrefillArgs {
  const int32_t *blocks;
  int64_t block_size, kv_heads, head, group, dim, ctx, len, window, first_col, cols;
  double scale;
  const float *sinks;  // as above
  static int64_t scratch(int64_t dim) { return 2 * dim * PREFILL_COLS + 64 * dim + (64 + 3) * PREFILL_COLS; }
};

// Queries of some kv heads against the tokens from..to-1 of a sequence, which lie within one chunk of
// ATTEND_KEYS. Column c of a head sees the tokens first[c]..end[c]-1; q is [heads, cols, dim], and so are
// the results. There is more than one head only where the columns are few.
constexpr int64_t ATTEND_KEYS = 128, ATTEND_COLS = 96, ATTEND_FEW = 12;
struct AttendArgs {
  const int32_t *blocks;
  int64_t block_size, kv_heads, head, heads, dim, from, to, cols;
  int64_t next;  // the tokens to..next-1 are those of the caller's next call; next ≤ to: there is none
  const int32_t *first, *end;
  float scale;
  static int64_t wide(int64_t dim) { return (dim + 63) / 64 * 64; }
  static bool few(int64_t cols, int64_t dim) { return cols <= ATTEND_FEW && dim % 8 == 0; }
  // Bytes, for numbers of `size` bytes.
  static int64_t scratch(int64_t heads, int64_t dim, int64_t size) {
    const int64_t panels = size * (wide(dim) + ATTEND_COLS) * ATTEND_KEYS + 4 * ATTEND_KEYS * ATTEND_COLS;
    const int64_t few = heads * ATTEND_FEW * ATTEND_KEYS * (size + 4);
    const int64_t avx2 = 4 * ((ATTEND_KEYS + ATTEND_COLS) * wide(dim) + ATTEND_KEYS * ATTEND_COLS);
    return std::max({panels, few, avx2});
  }
};

// Queries of a packed tree: columns first_col..first_col+cols-1 of the tokens from
// first_token on, in one node, or in neighbouring leaves of one parent.
struct TreeArgs {
  const int32_t *path;  // of the ancestors, the root first: start and length
  int64_t path_len, depth;  // how many they are, and their tokens
  const int32_t *own;   // of every token: where its node begins
  int64_t kv_heads, head, group, dim, window, first_token, first_col, cols;
  int64_t k_stride, v_stride;  // from one token to the next
  double scale;
  static int64_t forward_scratch(int64_t dim) { return 2 * dim * PREFILL_COLS + 64 * dim + (64 + 3) * PREFILL_COLS; }
  static int64_t backward_scratch(int64_t dim) {
    int64_t chunks = (dim + PREFILL_COLS - 1) / PREFILL_COLS;
    return 3 * dim * PREFILL_COLS + 2 * chunks * PREFILL_COLS * PREFILL_COLS + 2 * 64 * dim + (3 * 64 + 2) * PREFILL_COLS;
  }
};

// The gated delta rule over the runs of a tree, for one head of the keys (delta_kernels.h).
constexpr int64_t DELTA_CHUNK = 64, DELTA_FEW = 16;  // tokens of a chunk; of a run that is computed token by token
struct DeltaRun {
  int32_t start, len, parent;  // parent: an earlier one; −1: none
  int32_t state;               // where in scratch the state after it is; −1: it has few tokens, and no run continues it
  const float *from;           // without a parent: the states before it [value heads, key dim, value dim]; null: zeros
  float *const *into;          // where the states after it go, each as `from`
  int64_t saves;               // how many those are
};
// A chunk, for backward. The gradient of the state before it goes to `before`, and is added to `sum`.
struct DeltaPart {
  int32_t start, len, parent;
  int32_t state, grad;  // of the state after it: where both are in scratch; −1: no chunk continues it
  int32_t before, sum;  // −1: none
};
struct DeltaArgs {
  const DeltaRun *runs;
  const DeltaPart *parts;  // null: forward
  int64_t n, n_parts, states, grads;
  int64_t key_heads, value_heads, key_dim, value_dim, head;
  int64_t b_stride, a_stride;   // from one token to the next
  const float *rate, *dt_bias;  // [value heads]: a decay is exp(rate·softplus(a + dt_bias))
};
template <class S>
struct DeltaGrads {
  S *qkv, *b, *a;           // as the inputs, b and a without strides
  double *a_log, *dt_bias;  // [value heads], added to
};

template <class S, class A>
struct Typed {
  // x [tokens, heads, dim], cos and sin [tokens, half]: pairs (i, i+half), or (2i, 2i+1), are turned
  void (*rope)(const S *x, const A *cos, const A *sin, S *y, int64_t tokens, int64_t heads, int64_t dim, int64_t half, bool pairs, A sign);
  // gu [rows, 2f] → y [rows, f]
  void (*silu_mul)(const S *gu, S *y, int64_t rows, int64_t f);
  void (*silu_mul_backward)(const S *gu, const S *dy, S *dx, int64_t rows, int64_t f);
  // add and sum may be null; else sum = x + add is what is normalised; times offset + w
  void (*rms_norm)(const S *x, const S *add, const S *w, S *sum, S *y, int64_t rows, int64_t n, double eps, A offset);
  // dw, in the accumulation type, is added to
  void (*rms_norm_backward)(const S *x, const S *w, const S *dy, S *dx, A *dw, int64_t rows, int64_t n, double eps, A offset);
  // One row of logits, of which s·z [v] are looked at, s > 0: its entry y − its logsumexp, the entropy, the logsumexp.
  void (*softmax_row)(const S *z, int64_t v, int64_t y, A s, A *lp, A *entropy, A *lse);
  // z becomes s·(g·(onehot y − p) − ge·p·(log p + entropy)), p = exp(s·z − lse).
  void (*softmax_row_backward)(S *z, int64_t v, int64_t y, A s, A g, A ge, A lse, A entropy);
  // q and out [group, dim]; scratch of 2·group·dim + group·ctx + dim
  void (*paged_decode)(const S *q, const S *kpool, const S *vpool, const PagedArgs &a, A *scratch, S *out);
  // q and out [len, kv_heads·group, dim], dim a multiple of 8; null for float64
  void (*paged_prefill)(const S *q, const S *kpool, const S *vpool, const PrefillArgs &a, float *scratch, S *out);
  // q and out [T, Hq, dim], lse [T, Hq]; dk and dv are added to, [T, dim] of one head.
  // Null for float64, as are those below.
  void (*tree_forward)(const S *q, const S *k, const S *v, const TreeArgs &a, float *scratch, S *out, float *lse);
  void (*tree_backward)(const S *q, const S *k, const S *v, const S *out, const S *dout, const float *lse, const TreeArgs &a,
                        float *scratch, S *dq, float *dk, float *dv);
  // Sums of `of` [2, T, dim] over the tokens from..to-1 → dk and dv [T, heads, dim].
  void (*tree_sum)(const float *const *of, int64_t n, int64_t from, int64_t to, int64_t T, int64_t dim, int64_t heads, int64_t head,
                   S *dk, S *dv);
  // qkv [T, 2·key heads·key dim + value heads·value dim], b and a [T, value heads] → out [T, value heads·value dim]
  void (*delta_forward)(const S *qkv, const S *b, const S *a, const DeltaArgs &d, float *scratch, S *out);
  void (*delta_backward)(const S *qkv, const S *b, const S *a, const S *dout, const DeltaArgs &d, float *scratch, const DeltaGrads<S> &to);
  int64_t (*delta_scratch)(const DeltaArgs &d);  // floats
  // x [rows, k] by a panel of 64 outputs (see panels.h) → y [rows, 64]; null where there is none. The panel
  // `next`, which this thread multiplies after it, is prefetched; null: there is none.
  void (*panel)(const S *x, int64_t ldx, int64_t rows, const S *w, int64_t k, float *y, const S *next);
  // Of each column the largest score m, z = Σ exp(score − m), and acc [heads, cols, wide] = Σ exp(score − m)·v.
  // A column that sees nothing has m = −1e30 and zeros. Null where panel is.
  void (*attend)(const S *q, const S *kpool, const S *vpool, const AttendArgs &a, char *scratch, float *m, float *z, float *acc);
  // x [rows, k] by n ≤ 64 rows of a plain weight [n, k] → y [rows, 64]. Null where panel is.
  void (*dots)(const S *x, int64_t ldx, int64_t rows, const S *w, int64_t n, int64_t k, float *y);
  // What follows is of a decoder's step (decoder.h), and null for float64.
  void (*round_row)(const float *x, const float *bias, int64_t n, S *y);  // y = x + bias, which may be null
  void (*add_times)(const S *x, float factor, int64_t n, S *y);           // y += factor·x, the product rounded before it is added
  void (*gelu_mul)(const S *gu, S *y, int64_t rows, int64_t f);  // as silu_mul, with GELU by tanh
  void (*sigmoid_mul)(S *x, const S *gate, int64_t n);           // x = x·sigmoid(gate)
  // y [channels] = Σ_j w[j]·taps[j] + bias, then SiLU where it is activated; w [taps, channels], bias may be null
  void (*conv_row)(const S *const *taps, int64_t n, const float *w, const float *bias, int64_t channels, bool activated, S *y);
  // RMSNorm of each head of x [heads, dim] by w [dim], times silu(gate)
  void (*gated_norm)(const S *x, const S *w, const S *gate, S *y, int64_t heads, int64_t dim, double eps);
  bool own_panels = false;  // oneDNN has no panels where these kernels are used: weights are put into ours (PanelHead)
  bool widens = false;      // bfloat16 is multiplied faster in float32 than by libtorch (products.h)
};

struct QuantPanel;
struct QuantRows;

// A weight [n, k] in panels (panels.h), where oneDNN has another layout for the processor: one tensor
// of bytes begins with this, and has the panels behind it.
struct PanelHead {
  int64_t magic, n, k, size, unused[4];  // size: bytes of a number, 4 or 2; k is even
  static constexpr int64_t MAGIC = 0x716167656e747031;
  int64_t stride() const { return 64 * k; }  // numbers of a panel
};
static_assert(sizeof(PanelHead) == 64, "panels begin at a line of the cache");

enum class Instructions { BASE, AVX2, AVX512, AVX512_BF16 };

struct Kernels {
  const char *name;
  Instructions instructions;
  Typed<bf16, float> b;
  Typed<float, float> f;
  Typed<double, double> d;
  // What one query has of some chunks, acc [wide], takes in what it has of the next one. Null as above.
  void (*attend_add)(float *m, float *z, float *acc, float m1, float z1, const float *acc1, int64_t wide);
  void (*sample)(const float *logits, int64_t vocab, const agt_sampling &o, float *scratch, int32_t *id, float *lp);
  // A row [k] in 16 bits; rows of such numbers by a panel of 64 outputs → y [rows, 64]. The
  // panel `next` is prefetched; it may be null. See quant.h. Null where there is none.
  void (*quant_row)(const bf16 *x, int64_t k, const QuantRows &to) = nullptr;
  void (*quant_panel)(const QuantRows &x, int64_t rows, int64_t k, const QuantPanel &w, const char *base, const QuantPanel *next, float *y) = nullptr;
};

const Kernels &kernels();  // the best for this processor

}  // namespace agt
