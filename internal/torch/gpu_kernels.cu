// Our kernels for a device. NVRTC compiles them when a device is first used; the tests
// compile the same text for the CPU and run it block by block (testdevice/blocks.h), so
// nothing is included but what lies beside this file.
//
// A result depends on its own row alone: neither the number of rows nor what the others
// hold changes a bit.
#include "gpu_attention.cuh"
#include "gpu_experts.cuh"
#include "gpu_layer.cuh"
#include "gpu_recurrent.cuh"
#include "gpu_sample.cuh"
#include "gpu_training.cuh"
#include "gpu_dequantise.cuh"

// One entry a kernel and type: the host looks up "gpu_" + name, with "_f32" or "_bf16". An early
// kernel calls await_last itself.
#define AGT_ENTRY(name, bounds, args, first, ...)                                  \
  extern "C" __global__ void __launch_bounds__ bounds gpu_##name(const agt::gpu::args a) { \
    agt::gpu::let_next_start();                                                    \
    first;                                                                         \
    agt::gpu::__VA_ARGS__(a);                                                      \
  }
#define AGT_KERNEL(name, threads, args, call) AGT_ENTRY(name, (threads), args, agt::gpu::await_last(), call)
#define AGT_EARLY(name, threads, args, call) AGT_ENTRY(name, (threads), args, , call)
#define AGT_BOTH(name, threads, args, call)                    \
  AGT_KERNEL(name##_f32, threads, args, call<float>)           \
  AGT_KERNEL(name##_bf16, threads, args, call<agt::gpu::bf16>)
#define AGT_COMMA ,
#define AGT_DECODE(name, g, parts)                                                     \
  AGT_EARLY(name##_f32, 128, Decode, decode<float AGT_COMMA g AGT_COMMA parts>) \
  AGT_EARLY(name##_bf16, 128, Decode, decode<agt::gpu::bf16 AGT_COMMA g AGT_COMMA parts>)
AGT_DECODE(decode1, 1, 1)
AGT_DECODE(decode2, 2, 1)
AGT_DECODE(decode4, 4, 1)
AGT_DECODE(long_decode1, 1, 2)
AGT_DECODE(long_decode2, 2, 2)
AGT_BOTH(combine, 128, Decode, combine)
AGT_BOTH(embed, 128, Embed, embed)
AGT_BOTH(gate, 128, Gate, gate)
#define AGT_PRODUCT(m)                                                                            \
  AGT_EARLY(product##m##_bf16, 256 AGT_COMMA 3, Product, product<m AGT_COMMA false>) \
  AGT_EARLY(normed_product##m##_bf16, 256 AGT_COMMA 3, Product, product<m AGT_COMMA true>)
AGT_PRODUCT(1)
AGT_PRODUCT(2)
AGT_PRODUCT(4)
AGT_BOTH(norm_rows, 128, Norm, norm_rows)
AGT_BOTH(norm_long, 512, Norm, norm_long)
AGT_BOTH(norm_rows_gradient, 256, NormGradient, norm_rows_gradient)
AGT_BOTH(norm_long_gradient, 256, NormGradient, norm_long_gradient)
AGT_BOTH(gate_gradient, 128, GateGradient, gate_gradient)
AGT_BOTH(turn, 128, Turn, turn)
AGT_EARLY(heads_f32, 128, Heads, heads<float AGT_COMMA 1>)
AGT_EARLY(heads_bf16, 128, Heads, heads<agt::gpu::bf16 AGT_COMMA 1>)
AGT_EARLY(long_heads_f32, 128, Heads, heads<float AGT_COMMA 2>)
AGT_EARLY(long_heads_bf16, 128, Heads, heads<agt::gpu::bf16 AGT_COMMA 2>)
AGT_BOTH(choose_experts, 128, ChooseExperts, choose_experts)
AGT_KERNEL(order_experts, 512, OrderExperts, order_experts)
AGT_BOTH(expert_rows, 128, ExpertProduct, expert_rows)
AGT_BOTH(expert_columns, 128, ExpertProduct, expert_columns)
AGT_BOTH(sum_experts, 128, SumExperts, sum_experts)
AGT_BOTH(conv_step, 128, ConvStep, conv_step)
AGT_BOTH(delta_step, 512, DeltaStep, delta_step)
AGT_BOTH(gate_heads, 128, GateHeads, gate_heads)
AGT_BOTH(head, 256, Head, head)
AGT_BOTH(head_gradient, 256, HeadGradient, head_gradient)
AGT_BOTH(sample_tops, 256, Sample, sample_tops)
AGT_BOTH(sample_masses, 256, Sample, sample_masses)
AGT_BOTH(sample, 512, Sample, sample)
#define AGT_DEQUANTISE(number, B)                                                                                    \
  AGT_KERNEL(dequantise_##B##_f32, 128, DequantiseBlocks, dequantise_blocks<agt::B AGT_COMMA float>)                \
  AGT_KERNEL(dequantise_##B##_bf16, 128, DequantiseBlocks, dequantise_blocks<agt::B AGT_COMMA agt::gpu::bf16>)
AGT_BLOCK_TYPES(AGT_DEQUANTISE)
AGT_BOTH(dequantise_codes, 256, DequantiseCodes, dequantise_codes)
