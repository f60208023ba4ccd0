// Recurrent mixers of a device's decoder. gpu_decoder.cpp includes it.
#pragma once
#include <ATen/ATen.h>

#include "gpu.h"
#include "shim.h"
#include "tensors.h"

namespace agt {

// The mixer of a layer in place of attention; conv that is not defined: there is none. Without states it is a convolution alone.
struct DeviceMixer {
  at::Tensor conv, bias, windows, states;
  gpu::DeltaRule rule;

  DeviceMixer() = default;
  DeviceMixer(const agt_decoder_recurrent &r, double eps)
      : conv(tensor_of(r.conv)), bias(tensor_of(r.conv_bias)), windows(tensor_of(r.windows)), states(tensor_of(r.states)) {
    if (states.defined())
      rule = {tensor_of(r.a_log).to(at::kFloat).exp().contiguous(), tensor_of(r.dt_bias).to(at::kFloat).contiguous(), tensor_of(r.norm),
              r.heads, eps};
  }
  int64_t channels() const { return conv.size(0); }

  // y [rows, n] of the projection x; convolved [rows, channels] is where the rule finds what it takes.
  void compute(const at::Tensor &x, const gpu::StateSlots &slots, at::Tensor &convolved, at::Tensor &y) {
    if (!states.defined()) return gpu::conv_step(x, conv, bias, true, windows, slots, y);
    gpu::conv_step(x, conv, bias, false, windows, slots, convolved);
    gpu::delta_step(convolved, x, rule, states, slots, y);
  }
};

}  // namespace agt
