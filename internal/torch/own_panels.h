// Weights in panels of our own (PanelHead), where oneDNN's layout for the processor has none.
#pragma once
#include <ATen/ATen.h>

#include "kernels.h"

namespace agt {

// Whether a weight is put into panels of ours: on a CPU, where the kernels in use read no layout of oneDNN.
bool takes_own_panels(const at::Tensor &w);
at::Tensor own_panels(const at::Tensor &w);  // of w [n, k]
// The head of such a tensor; null: it is another one.
const PanelHead *own_head(const at::Tensor &packed);
// x [.., k] times the weight, plus bias [n], which may be undefined.
at::Tensor own_linear(const at::Tensor &x, const PanelHead &w, const at::Tensor &bias);

}  // namespace agt
