//go:build libtorch

// The kernels of ../gpu_kernels.cu on the device of the tests, block by block.
#include "blocks.h"

#include "../gpu_kernels.cu"

#include <c10/util/Exception.h>

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "../gpu.h"
#include "device.h"
#include "testdevice.h"

namespace testdevice {
namespace {

template <class A, void (*kernel)(const A)>
void body(const void *args) { kernel(*static_cast<const A *>(args)); }

struct Kernel {
  void (*body)(const void *);
  size_t bytes;  // of its arguments
};

#define KERNEL(args, name) {#name, {body<agt::gpu::args, gpu_##name>, sizeof(agt::gpu::args)}}
#define BOTH(args, name) KERNEL(args, name##_f32), KERNEL(args, name##_bf16)
const std::map<std::string, Kernel> kernels{
    BOTH(Decode, decode1), BOTH(Decode, decode2), BOTH(Decode, decode4), BOTH(Decode, long_decode1), BOTH(Decode, long_decode2),
       BOTH(Decode, combine),
    BOTH(Norm, norm_rows), BOTH(Norm, norm_long), BOTH(Heads, heads), BOTH(Heads, long_heads), BOTH(Head, head), BOTH(HeadGradient, head_gradient), BOTH(Sample, sample),
    BOTH(Sample, sample_tops), BOTH(Sample, sample_masses),
    BOTH(NormGradient, norm_rows_gradient), BOTH(NormGradient, norm_long_gradient), BOTH(GateGradient, gate_gradient), BOTH(Turn, turn),
    BOTH(Embed, embed),   BOTH(Gate, gate),    KERNEL(Product, product1_bf16), KERNEL(Product, product2_bf16), KERNEL(Product, product4_bf16),
    KERNEL(Product, normed_product1_bf16), KERNEL(Product, normed_product2_bf16), KERNEL(Product, normed_product4_bf16),
    BOTH(ChooseExperts, choose_experts), KERNEL(OrderExperts, order_experts), BOTH(ExpertProduct, expert_rows),
    BOTH(ExpertProduct, expert_columns), BOTH(SumExperts, sum_experts),
    BOTH(ConvStep, conv_step), BOTH(DeltaStep, delta_step), BOTH(GateHeads, gate_heads),
#define DEQUANTISE(number, B) BOTH(DequantiseBlocks, dequantise_##B),
    AGT_BLOCK_TYPES(DEQUANTISE) BOTH(DequantiseCodes, dequantise_codes),
};

void launch(const agt::gpu::Call &c, at::TensorList used) {
  std::string name(c.kernel);
  if (c.type != at::ScalarType::Undefined) name += c.type == at::kFloat ? "_f32" : "_bf16";
  auto k = kernels.find(name);
  TORCH_CHECK(k != kernels.end(), "there is no kernel ", name);
  const auto run = [x = c.x, y = c.y, z = c.z, threads = c.threads, body = k->second.body](at::TensorList used, const void *args) {
    std::deque<Open> open;
    for (const at::Tensor &t : used)
      if (t.defined()) open.emplace_back(t);
    calls[4]++;
    blocks::run(x, y, z, threads, body, args);
  };
  if (!recording) return run(used, c.args);
  std::vector<Place> places;
  for (const at::Tensor &t : used)
    if (t.defined()) places.emplace_back(t);
  const auto *args = static_cast<const char *>(c.args);
  recording->push_back([run, places, args = std::vector<char>(args, args + k->second.bytes)] {
    std::vector<at::Tensor> again;
    for (const Place &p : places) again.push_back(p.at());
    run(again, args.data());
  });
}

}  // namespace
}  // namespace testdevice

extern "C" void agt_test_device_kernels(int on) { agt::gpu::set_test_device(on ? testdevice::launch : nullptr, testdevice::record); }
