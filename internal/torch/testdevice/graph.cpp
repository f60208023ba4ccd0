//go:build libtorch

// Graphs of the device: the steps of some work, made again where their tensors are.
#include <c10/util/ScopeExit.h>

#include <optional>

#include "device.h"

namespace testdevice {

thread_local std::vector<std::function<void()>> *recording = nullptr;

Place::Place(const at::Tensor &t)
    : storage_(t.storage().getWeakStorageImpl()),
      sizes_(t.sizes().vec()),
      strides_(t.strides().vec()),
      offset_(t.storage_offset()),
      type_(t.dtype()) {}

at::Tensor Place::at() const {
  auto storage = storage_.lock();
  TORCH_CHECK(storage, "recorded work is on memory that was given back, of a tensor ", sizes_);
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)), keys, type_);
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes_, strides_, offset_);
  return t;
}

void record_operation(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  struct Argument {
    c10::IValue value;
    std::optional<Place> place;  // of a tensor on the device
  };
  const auto &schema = op.schema();
  const size_t n = schema.arguments().size(), from = stack->size() - n;
  std::vector<Argument> arguments;
  for (size_t i = from; i < stack->size(); i++) {
    const c10::IValue &v = (*stack)[i];
    TORCH_CHECK(!v.isTensorList() && !v.isOptionalTensorList(), schema.name(), " takes a list of tensors, which is not recorded");
    const bool on_device = v.isTensor() && v.toTensor().defined() && v.toTensor().is_privateuseone();
    TORCH_CHECK(on_device || !v.isTensor() || !v.toTensor().defined() || v.toTensor().dim() == 0, schema.name(),
                " takes a tensor of the host in work that is recorded");
    if (on_device)
      arguments.push_back({{}, Place(v.toTensor())});
    else
      arguments.push_back({v, {}});
  }
  // What comes back is what is written to.
  torch::jit::Stack results;
  for (const auto &r : schema.returns())
    for (size_t i = 0; i < n; i++) {
      const auto *a = schema.arguments()[i].alias_info();
      if (a && r.alias_info() && a->isWrite() && a->beforeSets() == r.alias_info()->beforeSets()) results.push_back((*stack)[from + i]);
    }
  TORCH_CHECK(results.size() == schema.returns().size(), schema.name(), " gives a new tensor in work that is recorded");
  recording->push_back([op, arguments] {
    torch::jit::Stack again;
    for (const Argument &a : arguments) again.push_back(a.place ? c10::IValue(a.place->at()) : a.value);
    fallback(op, &again);
  });
  torch::jit::drop(*stack, n);
  for (auto &r : results) stack->push_back(std::move(r));
}

namespace {
struct Steps final : agt::gpu::Graph {
  at::Tensor memory;  // a graph takes some of the device's
  std::vector<std::function<void()>> steps;
  void launch() const override {
    for (const auto &step : steps) step();
  }
};
}  // namespace

std::unique_ptr<agt::gpu::Graph> record(at::Device, const std::function<void()> &work) {
  work();
  auto graph = std::make_unique<Steps>();
  try {
    graph->memory = at::empty({1}, at::TensorOptions().device(at::kPrivateUse1));
  } catch (const c10::Error &) {
    return nullptr;
  }
  const auto ended = c10::make_scope_exit([] { recording = nullptr; });
  recording = &graph->steps;
  work();
  return graph;
}

}  // namespace testdevice
