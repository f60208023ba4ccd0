// The plain C face of shim.cpp: what libtch lacks, has wrong, or is too slow
// at. Every function returns 0, or 1 and a malloc-ed message in *err which the
// caller frees. A tensor is a pointer to a heap-allocated at::Tensor, the same
// thing as libtch's `tensor`, freed with at_free or agt_free.
#pragma once
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef void *agt_tensor;

void agt_free(agt_tensor t);

// Dtypes here are c10::ScalarType numbers, devices -1 (CPU), a CUDA index, or -2 (the tests' device).
int agt_from_data(agt_tensor *out, const void *data, const int64_t *shape, int ndim, int dtype, char **err);
// The same of data in several places, one behind the other.
typedef struct {
  const void *data;
  int64_t n;
} agt_bytes;
int agt_from_parts(agt_tensor *out, const agt_bytes *parts, int n, const int64_t *shape, int ndim, int dtype, int device, char **err);
// The numbers of blocks of a GGUF (their type's number there), in float32 or bfloat16. A device with our kernels computes them.
int agt_from_blocks(agt_tensor *out, const agt_bytes *parts, int n, const int64_t *shape, int ndim, int type, int dtype, int device,
                    char **err);
// The codebooks of blocks, in the order of codebooks.h; once, before any is used.
int agt_set_codebooks(const int8_t *of, int64_t n, char **err);
// Matrices of codes: codes.Matrices.
typedef struct {
  const void *data;
  const float *scales, *zeros;
  const int32_t *groups;
  int64_t bytes, n_scales, n_zeros, n_groups;
  int64_t count, rows, cols, stride, across, high, wide;
  int32_t transposed, bits, order, meaning, rounding;
} agt_codes;
// Their numbers, in float32 or bfloat16. A device with our kernels computes them.
int agt_from_codes(agt_tensor *out, const agt_codes *parts, int n, const int64_t *shape, int ndim, int dtype, int device, char **err);
int agt_full(agt_tensor *out, const int64_t *shape, int ndim, double value, int dtype, int device, char **err);
int agt_empty(agt_tensor *out, const int64_t *shape, int ndim, int dtype, int device, char **err);
int agt_empty_host(agt_tensor *out, const int64_t *shape, int ndim, int dtype, int device, char **err);
int agt_to(agt_tensor *out, agt_tensor x, int dtype, int device, int copy, char **err);
int agt_copy_out(agt_tensor x, void *dst, int dtype, int64_t numel, char **err);
int agt_copy_(agt_tensor dst, agt_tensor src, int waits, char **err);
int agt_shape(agt_tensor x, int64_t *shape, int *ndim, char **err);
int agt_info(agt_tensor x, int *dtype, int *device, int *requires_grad, char **err);
int agt_requires_grad_(agt_tensor x, int on, char **err);

int agt_narrow(agt_tensor *out, agt_tensor x, int dim, int64_t start, int64_t len, char **err);
int agt_view(agt_tensor *out, agt_tensor x, const int64_t *shape, int ndim, char **err);
int agt_split(agt_tensor *outs, agt_tensor x, const int64_t *sizes, int n, int dim, char **err);
int agt_cat(agt_tensor *out, agt_tensor *xs, int n, int dim, char **err);
int agt_linear(agt_tensor *out, agt_tensor x, agt_tensor w, agt_tensor bias, char **err);
// Whether agt_pack_linear puts weights of that type into panels of ours.
int agt_own_panels(int dtype);
// A copy of w in oneDNN's blocked layout, or in panels of ours, for agt_linear_packed only (CPU, no gradient).
int agt_pack_linear(agt_tensor *out, agt_tensor w, char **err);
// Rows of a file below each other as a weight in the layout of like, a packed one of the same shape; bytes holds it.
// They are numbers of dtype, or blocks of a GGUF of that type; blocks is -1 where they are none.
int agt_pack_parts(agt_tensor *out, agt_tensor *bytes, agt_tensor like, const agt_bytes *parts, int n, int dtype, int blocks, char **err);
// agt_pack_parts of matrices of codes, all of which are transposed or none. Transposed ones have whole panels of 64 outputs, but for
// the last.
int agt_pack_codes(agt_tensor *out, agt_tensor *bytes, agt_tensor like, const agt_codes *parts, int n, char **err);
int agt_linear_packed(agt_tensor *out, agt_tensor x, agt_tensor packed, agt_tensor bias, char **err);
// y = x·wᵀ + bias, and scale·(drop(x)·Aᵢᵀ)·Bᵢᵀ added to y's columns from row[i] on,
// as many as Bᵢ has rows. ab: A₀, B₀, A₁, …; w and bias get no gradient.
int agt_lora_linear(agt_tensor *out, agt_tensor x, agt_tensor w, agt_tensor bias, agt_tensor *ab, const int64_t *row,
                    const uint64_t *seed, int n, double scale, double dropout, char **err);
// (x·Aᵢᵀ)·Bᵢᵀ added to `count[i]` rows of y from `from[i]` on, in place; ab: A₀, B₀, A₁, … No gradient.
int agt_add_low_rank_(agt_tensor y, agt_tensor x, agt_tensor *ab, const int64_t *from, const int64_t *count, int n, char **err);
int agt_detach(agt_tensor *out, agt_tensor x, char **err);
// Norms multiply by offset + w.
int agt_rms_norm(agt_tensor *out, agt_tensor x, agt_tensor w, double eps, double offset, char **err);
int agt_add_rms_norm(agt_tensor *sum, agt_tensor *out, agt_tensor x, agt_tensor y, agt_tensor w, double eps, double offset,
                     char **err);
int agt_embedding(agt_tensor *out, agt_tensor weight, agt_tensor ids, char **err);
int agt_rope(agt_tensor *out, agt_tensor x, agt_tensor cos, agt_tensor sin, int pairs, char **err);
int agt_silu_mul(agt_tensor *out, agt_tensor gate_up, char **err);
int agt_gelu_mul(agt_tensor *out, agt_tensor gate_up, char **err);
int agt_activate(agt_tensor *out, agt_tensor x, int kind, char **err);  // 0: GELU, 1: GELU by tanh, 2: x·sigmoid(1.702·x)
int agt_layer_norm(agt_tensor *out, agt_tensor x, agt_tensor weight, agt_tensor bias, double eps, char **err);
// q, k, v [T, H, D]; each row sees the rows of its block.
int agt_block_attention(agt_tensor *out, agt_tensor q, agt_tensor k, agt_tensor v, const int64_t *lengths, int n, char **err);
// Of each row of logits [T, E] the `active` largest, as ids [T, active] (int64), and their
// weights in the type of x. bias [E] may be null: it is added for the choice alone. given [T,
// active] (int64) may be null: rows of it without a -1 are chosen in place of the largest.
typedef struct agt_router {
  int64_t active, sigmoid, normalise, groups, top_groups;
  double scale, epsilon;
} agt_router;
int agt_route(agt_tensor *ids, agt_tensor *weights, agt_tensor logits, agt_tensor bias, agt_tensor given, const agt_router *r, char **err);
// Of ids and given [T, active]: how many ids of rows of given without a -1 are not in the same row
// of ids, and how many there are: [2], float64.
int agt_not_chosen(agt_tensor *out, agt_tensor ids, agt_tensor given, char **err);
// Low-rank pairs beside the matrices of a layer's experts, as PEFT lays them out: a [E·rank, in],
// whose rows are those of one expert below those of the other, and b [out, rank·E], whose columns
// are E for each of rank. A matrix whose a is null has none.
typedef struct agt_expert_pairs {
  agt_tensor gate_up_a, gate_up_b, down_a, down_b;
  double scale;
} agt_expert_pairs;
// x [T, h], gate_up [E·2f, h], down [E·h, f].
int agt_experts(agt_tensor *out, agt_tensor x, agt_tensor ids, agt_tensor weights, agt_tensor gate_up, agt_tensor down, int64_t experts,
                int gelu, const agt_expert_pairs *pairs, char **err);
// gate_up [E, h, 2f] with columns gate, up, gate, …, its bias [E, 2f], down [E, f, h], its bias [E, h].
int agt_clamped_experts(agt_tensor *out, agt_tensor x, agt_tensor ids, agt_tensor weights, agt_tensor gate_up, agt_tensor gate_up_bias,
                        agt_tensor down, agt_tensor down_bias, double alpha, double limit, const agt_expert_pairs *pairs, char **err);
int agt_times(agt_tensor *out, agt_tensor x, double factor, char **err);

// The sequences of one attention, see agt::Spans; gather may be null.
typedef struct agt_spans {
  agt_tensor gather, cu_q, cu_k, host_q, host_k;
  int64_t max_q, max_k;
} agt_spans;
// The sequences of one new token that our kernel on a device decodes, see agt::gpu::Decoding;
// prompts are the rows of q of the other sequences, which spans describe: null where there
// are none.
typedef struct agt_decoding {
  agt_tensor numbers, prompts;
  int64_t n, longest;
} agt_decoding;
int agt_gpu_has(agt_tensor x);  // whether our kernels are on its device, and take its type
int agt_gpu_decodes(agt_tensor q);
// What heads are normed and rotated by, see agt::gpu::HeadRule; tensors may be null.
typedef struct agt_head_rule {
  agt_tensor q_norm, k_norm, q_cos, q_sin, k_cos, k_sin;
  int neighbours;
  double eps, offset;
} agt_head_rule;
int agt_gpu_heads(agt_tensor x);  // 1: agt_cached_heads takes x [T, Hq + 2·Hkv, D]
// q [T, Hq, D] of x; keys and values go into the pools' rows slots [T].
int agt_cached_heads(agt_tensor *q, agt_tensor x, agt_head_rule rule, agt_tensor slots, agt_tensor kpool, agt_tensor vpool, char **err);
int agt_fused_attention(agt_tensor q, agt_tensor k, agt_tensor v);  // 1: spans are not read, and may be null
// window > 0: positions that a token sees, its own included. scale: of q·k; 0 is 1/√dim.
// sinks [Hq]: logits that take part in the softmax and give nothing; may be null.
// nodes: n triples (start, len, parent), see policy.Pack.
int agt_tree_attention(agt_tensor *out, agt_tensor q, agt_tensor k, agt_tensor v, const int32_t *nodes, int n,
                       int64_t window, double scale, agt_tensor sinks, const agt_spans *spans, char **err);
// segs: n quadruples (q_start, q_len, ctx_len, first index in blocks), which the
// caller has checked. slots: int64 [T], the pools' row of each new token. k and v: null where
// agt_cached_heads has written them.
int agt_cached_attention(agt_tensor *out, agt_tensor q, agt_tensor k, agt_tensor v, agt_tensor kpool, agt_tensor vpool,
                         agt_tensor slots, const int32_t *segs, int n, const int32_t *blocks, int64_t window, double scale,
                         agt_tensor sinks, const agt_spans *spans, const agt_decoding *decoding, char **err);
// Recurrent layers, see agt::Kept, agt::Chunks, agt::DeltaRuns and agt::DeltaHeads. pool and its
// indices may be null.
typedef struct agt_kept {
  agt_tensor pool, from, into, last;
} agt_kept;
typedef struct agt_delta_heads {
  int64_t key_heads, value_heads, key_dim, value_dim;
} agt_delta_heads;
int agt_causal_conv(agt_tensor *out, agt_tensor x, agt_tensor weight, agt_tensor bias, int silu, agt_tensor index, agt_kept kept, char **err);
typedef struct agt_chunks {
  int64_t size, count;  // 0: there are none
  const int64_t *levels;
  int64_t n_levels;
  agt_tensor place, parents;
} agt_chunks;
typedef struct agt_runs {
  const int32_t *runs;
  int64_t n;
  const int32_t *saves;
  int64_t n_saves;
} agt_runs;
int agt_fused_delta(agt_tensor qkv);  // 1: chunks and kept.last are not read
int agt_gated_delta(agt_tensor *out, agt_tensor qkv, agt_tensor b, agt_tensor a, agt_tensor a_log, agt_tensor dt_bias, agt_delta_heads h,
                    agt_runs runs, agt_chunks chunks, agt_kept kept, char **err);
int agt_gated_rms_norm(agt_tensor *out, agt_tensor x, agt_tensor w, agt_tensor gate, double eps, char **err);
int agt_sigmoid_mul(agt_tensor *out, agt_tensor x, agt_tensor gate, char **err);  // x·sigmoid(gate)
// cap·tanh(x/cap). No backward.
int agt_soft_cap(agt_tensor *out, agt_tensor x, double cap, char **err);
// [N, V] with the logits of these ids so low that they are not drawn. No backward.
int agt_bar(agt_tensor *out, agt_tensor logits, agt_tensor barred, char **err);
// cap: logits are those of agt_soft_cap; 0: as they are. scale [N]: they are multiplied by it then; null: by 1.
// barred [K]: ids whose logits are as agt_bar has them; null: none.
int agt_head_logprobs(agt_tensor *lp, agt_tensor *entropy, agt_tensor hidden, agt_tensor weight, agt_tensor targets,
                      agt_tensor scale, agt_tensor barred, double cap, int64_t chunk, char **err);
// tempered: the log-prob is that of logits/temperature, not of the model itself.
typedef struct agt_sampling {
  double temperature, top_p, min_p, uniform;
  int64_t top_k, tempered;
} agt_sampling;
int agt_sample(agt_tensor logits, const agt_sampling *rows, int n, int32_t *ids, float *logprobs, char **err);

// A decoder's step in one call; see decoder.cpp. Tensors may be null where a model has none.
enum { AGT_NORM_EACH_HEAD = 1, AGT_NORM_ALL_HEADS };  // how queries and keys are normed; 0: they are not
// Weights are packed; cos and sin [positions, dims/2]; rope: which of them, −1 none; qk_norm: AGT_NORM_…; gelu: of the gate, else SiLU; window and scale as in
// agt_tree_attention.
// A recurrent mixer in place of attention: conv is null: there is none; states are null: a convolution alone.
typedef struct agt_decoder_recurrent {
  agt_tensor conv, conv_bias, windows, a_log, dt_bias, norm, states;
  agt_delta_heads heads;
} agt_decoder_recurrent;
// Experts beside the dense MLP, or without one: router [experts, hidden], null: there are none; gate_up and down
// as in agt_experts.
typedef struct agt_decoder_experts {
  agt_tensor router, correction, gate_up, down;
  agt_router how;
  int64_t gelu;
  // Of a device's decoder alone: biases, and whether experts are those of agt_clamped_experts.
  agt_tensor router_bias, gate_up_bias, down_bias;
  int64_t clamped;
  double alpha, limit;
  // Beside the MLP with norms of their own (arch.Beside), or null: of what goes to the router and to the experts, and of what
  // the MLP and the experts give; and factors of the experts.
  agt_tensor router_norm, before, after_mlp, after, factors;
} agt_decoder_experts;
typedef struct agt_decoder_layer {
  agt_tensor before_attention, after_attention, before_mlp, after_mlp, q_norm, k_norm, sinks, kpool, vpool;
  agt_tensor qkv, qkv_bias, o, o_bias, gate_up, gate_up_bias, down, down_bias;
  int64_t heads, kv_heads, dim, window, rope, qk_norm, gelu;
  double scale;
  int64_t gated;  // as Attention.Gated of package arch
  agt_tensor mlp_gate;
  agt_decoder_recurrent recurrent;
  agt_decoder_experts experts;
  // Of a device's decoder alone: heads as those of arch.Attention, and what stands behind a layer (arch.PerLayer), or null.
  int64_t shared, keys_are_values, value_norm;
  agt_tensor output_scale, per_layer_gate, per_layer_projection, per_layer_norm;
} agt_decoder_layer;
typedef struct agt_decoder_model {
  agt_tensor embed, norm, head;
  const agt_tensor *cos, *sin, *query_cos, *query_sin;  // those of queries are null where they are cos and sin
  const int32_t *pairs;                                 // 1: the pairs of a rope are neighbours
  int64_t n_ropes;
  double embed_scale, residual_scale, eps, norm_offset;
  // Of a device's decoder alone: the numbers that each layer has of a token (arch.PerLayer), or null.
  agt_tensor per_layer_embed, per_layer_projection, per_layer_norm;
  int64_t per_layer_gelu;
  double per_layer_scale;  // of the embedding
} agt_decoder_model;
// A low-rank pair beside a matrix of a layer for some rows, as in agt_add_low_rank_. slot: the matrix, 0 qkv, 1 o,
// 2 gate and up, 3 down. Rows count as the matrix has them: behind the last layer's mixer those that are wanted.
typedef struct agt_decoder_pair {
  agt_tensor a, b;
  int64_t layer, slot, from, count;
} agt_decoder_pair;
// segs and blocks as in agt_cached_attention; wanted: rows whose logits are computed, in order. runs: of
// a recurrent model. chosen, or null: where the experts of the rows go, [layers with experts, rows, active].
typedef struct agt_decoder_rows {
  const int32_t *ids, *positions, *segs, *blocks, *wanted;
  int64_t rows, n, n_wanted;
  agt_runs runs;
  int32_t *chosen;
  const agt_decoder_pair *pairs;
  int64_t n_pairs;
  // Only the layers first_layer..end_layer−1; end_layer 0: all. held [2, rows, hidden]: where the
  // layers before leave the rows, and these leave them for the next. Without logits, recurrent
  // layers and chosen.
  int64_t first_layer, end_layer;
  void *held;
  // Of a recurrent model on a device: of each row the slot of its states, and one that gets a copy of them; 0: none.
  const int32_t *states;
} agt_decoder_rows;
// A decoder on a device; see gpu_decoder.cpp. Weights are as they are. most: rows of a step, and
// blocks of a sequence; draws: its steps draw a token of each row.
int agt_gpu_decoder_new(void **out, const agt_decoder_model *m, const agt_decoder_layer *layers, int n, int64_t most_rows, int64_t most_blocks,
                        int draws, int records, char **err);
void agt_gpu_decoder_free(void *decoder);
// rows->segs: one row each; wanted is not read. how [rows], where it draws.
int agt_gpu_decoder_launch(void *decoder, const agt_decoder_rows *rows, const agt_sampling *how, char **err);
// The results of the launched step of so many rows: ids and logprobs [rows], where it draws; logits
// [rows, V], valid until the next launch. chosen [layers with experts, rows, active], where it records them.
int agt_gpu_decoder_wait(void *decoder, int64_t rows, int32_t *ids, float *logprobs, int32_t *chosen, agt_tensor *logits, char **err);
// A part of a weight [n, k] as a GGUF has it: rows of it, in blocks of a type (blocks.h).
typedef struct agt_quant_part {
  const void *data;
  int64_t rows, cols, bytes;
  int blocks;
} agt_quant_part;
int agt_quant_pack(agt_tensor *out, const agt_quant_part *parts, int n, char **err);  // for a decoder
int agt_quant_dense(agt_tensor *out, agt_tensor packed, char **err);                  // the weight in bfloat16
int agt_quant_kernels(void);                                                          // whether this processor has the products
int agt_in_panels(agt_tensor packed, agt_tensor w, int *yes, char **err);  // whether a packed weight is one that a decoder reads
int agt_decoder_new(void **out, const agt_decoder_model *m, const agt_decoder_layer *layers, int n, char **err);
void agt_decoder_free(void *decoder);
int agt_decoder_step(void *decoder, const agt_decoder_rows *rows, agt_tensor *logits, char **err);

int agt_has_grad(agt_tensor x);
int agt_backward(agt_tensor *xs, agt_tensor *grads, int n, char **err);
int agt_grad(agt_tensor *out, agt_tensor x, char **err);
int agt_clear_grad(agt_tensor x, char **err);
int agt_global_norm(agt_tensor *xs, int n, double *norm, char **err);
int agt_scale_(agt_tensor *xs, int n, double factor, char **err);
int agt_adamw_(agt_tensor *params, agt_tensor *grads, agt_tensor *m, agt_tensor *v, int n, double lr, double beta1,
               double beta2, double eps, double weight_decay, double step, char **err);

int agt_grad_mode(int on);  // returns what it was
void agt_keep_memory(void);
void agt_arena(void);  // once, before the first tensor
void agt_arena_stats(int64_t *used, int64_t *held);  // bytes
void agt_set_threads(int n);
int agt_threads(void);
int agt_deterministic(int on); // returns what it was
const char *agt_version(void);
const char *agt_cpu_capability(void);
const char *agt_lib_path(void);
const char *agt_kernels(void);
int agt_has_driver(void);  // whether there is an NVIDIA driver
// Loads libtorch's CUDA part from a file, once. why: a message where there is no CUDA.
typedef struct {
  int asked, loaded;    // a question was put to CUDA; its part was loaded
  int driver, runtime;  // the newest CUDA that the driver knows, and libtorch's: 12080 is 12.8; 0: unknown
} agt_cuda;
int agt_cuda_devices(const char *file, agt_cuda *found, char **why);
// Our kernels (gpu_kernels.cu): machine code for an architecture ("sm_90a"), by the NVRTC in
// a file; *cubin is freed by the caller. n_headers: files that the source includes.
int agt_gpu_compile(const char *nvrtc, const char *source, int n_headers, const char *const *names, const char *const *headers,
                    const char *standard, const char *arch, void **cubin, int64_t *n, char **err);
// The version of the NVRTC in a file, and the file that has it: a file that needs NVRTC does, too.
typedef struct agt_nvrtc {
  int major, minor;
  char path[4096];
} agt_nvrtc;
int agt_gpu_nvrtc(const char *nvrtc, agt_nvrtc *found, char **err);
typedef struct agt_gpu {
  char name[256];
  int64_t memory;  // bytes
  int major, minor;  // compute capability
  int driver, runtime, cudnn;  // versions: 13000 is CUDA 13.0, 91900 is cuDNN 9.19.0
} agt_gpu;
int agt_gpu_device(int device, agt_gpu *gpu, char **err);
int agt_gpu_load(int device, const void *cubin, char **err);
void agt_empty_cache(int device);
int agt_free_memory(int device, int64_t *bytes, char **err);  // of a device that is not the CPU
int agt_peak_memory(int device, int64_t *allocated, int64_t *reserved, char **err);  // likewise, of this process so far
int agt_has_test_device(void);
// For the tests: an exception, and a choice of kernels ("avx512", "avx2", "base", "none", "" the best).
int agt_throw(const char *message, char **err);
int agt_use_kernels(const char *name, char **err);
#ifdef __cplusplus
}
#endif
