// MoE experts of a device's decoder. gpu_decoder.cpp includes it.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "gpu.h"
#include "shim.h"
#include "tensors.h"

namespace agt {

// The experts of a layer; a router that is not defined: there are none.
struct DeviceExperts {
  at::Tensor router, bias, correction;  // float32 where shares are sigmoids of it; of the logits; of the choice
  at::Tensor router_norm, before, after_mlp, after, factors;  // of agt_decoder_experts
  agt_router how;
  gpu::ExpertWeights inner, outer;

  DeviceExperts() = default;
  explicit DeviceExperts(const agt_decoder_experts &e) : how(e.how) {
    if (!e.router) return;
    router = tensor_of(e.router);
    if (how.sigmoid) router = router.to(at::kFloat);
    bias = tensor_of(e.router_bias);
    if (e.correction) correction = tensor_of(e.correction).to(at::kFloat).contiguous();
    router_norm = tensor_of(e.router_norm), before = tensor_of(e.before), after_mlp = tensor_of(e.after_mlp), after = tensor_of(e.after);
    if (e.factors) factors = tensor_of(e.factors).to(at::kFloat).contiguous();
    const int64_t n = router.size(0);
    const bool clamped = e.clamped != 0;
    auto matrices = [&](agt_tensor w) {
      at::Tensor t = tensor_of(w);
      return t.dim() == 3 ? t : t.view({n, t.size(0) / n, t.size(1)});
    };
    const gpu::ExpertGating gating = clamped ? gpu::kClamped : e.gelu ? gpu::kGelu : gpu::kSilu;
    inner = {matrices(e.gate_up), tensor_of(e.gate_up_bias), clamped, gating, e.alpha, e.limit};
    outer = {matrices(e.down), tensor_of(e.down_bias), clamped, gpu::kNotGated, 0, 0};
  }
  int64_t count() const { return router.size(0); }
  int64_t size() const { return outer.w.size(outer.columns ? 1 : 2); }
};

// The buffers of a step's experts. The ids of all layers stay until the next step.
class ExpertBuffers {
 public:
  ExpertBuffers() = default;
  ExpertBuffers(const std::vector<const DeviceExperts *> &layers, int64_t rows, const at::Tensor &embed) : layers_(int64_t(layers.size())) {
    if (layers.empty()) return;
    int64_t count = 0, size = 0;
    for (auto *e : layers) {
      count = std::max(count, e->count());
      size = std::max(size, e->size());
      TORCH_CHECK(active_ == 0 || active_ == e->how.active, "layers choose ", active_, " and ", e->how.active, " experts");
      active_ = e->how.active;
    }
    const int64_t hidden = embed.size(1), pairs = rows * active_;
    wide_ = at::empty({rows * hidden}, embed.options().dtype(at::kFloat));
    logits_ = at::empty({rows * count}, embed.options());
    wide_logits_ = at::empty({rows * count}, wide_.options());
    ids = at::empty({layers_ * pairs}, embed.options().dtype(at::kInt));
    of_ = gpu::RowExperts(rows, active_, count, embed.device());
    act_ = at::empty({pairs * size}, embed.options());
    each_ = at::empty({pairs * hidden}, embed.options());
  }

  // y = what the experts of the k-th layer that has some give of rows h, chosen by what the router gives of rows `by`, and
  // beside, gated or not, where they are defined. product(x, w, bias, y) multiplies.
  template <class F>
  void compute(const DeviceExperts &e, int64_t k, const at::Tensor &by, const at::Tensor &h, const at::Tensor &contexts,
               const at::Tensor &beside, const at::Tensor &gate, at::Tensor &y, F product) {
    auto part = [](const at::Tensor &t, int64_t rows, int64_t wide) { return t.narrow(0, 0, rows * wide).view({rows, wide}); };
    const int64_t n = h.size(0), hidden = h.size(1), pairs = n * active_;
    at::Tensor z;
    if (e.how.sigmoid && h.scalar_type() != at::kFloat) {
      at::Tensor in = part(wide_, n, hidden);
      in.copy_(by);
      z = part(wide_logits_, n, e.count());
      at::mm_out(z, in, e.router.t());
      if (e.bias.defined()) z.add_(e.bias);
    } else {
      z = part(logits_, n, e.count());
      product(by, e.router, e.bias, z);
    }
    gpu::RowExperts of;
    of.ids = ids.narrow(0, k * pairs, pairs).view({n, active_});
    of.shares = part(of_.shares.view({-1}), n, active_);
    of.first = of_.first.narrow(0, 0, e.count() + 1);
    of.used = of_.used.narrow(0, 0, e.count() + 1);
    of.order = of_.order.narrow(0, 0, pairs);
    gpu::choose_experts(z, {e.correction, e.factors, contexts, e.how, h.scalar_type() == at::kBFloat16}, of);
    gpu::order_experts(of);
    at::Tensor act = part(act_, pairs, e.size()), each = part(each_, pairs, hidden);
    gpu::expert_product(h, active_, e.inner, of, act);
    gpu::expert_product(act, 1, e.outer, of, each);
    gpu::sum_experts(each, of, beside, gate, y);
  }

  int64_t layers() const { return layers_; }
  int64_t active() const { return active_; }
  at::Tensor ids;  // int32 [layers, rows of the step, active]

 private:
  int64_t layers_ = 0, active_ = 0;
  gpu::RowExperts of_;
  at::Tensor wide_, logits_, wide_logits_, act_, each_;
};

}  // namespace agt
