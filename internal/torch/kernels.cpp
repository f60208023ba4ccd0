//go:build libtorch

// Which kernels this processor uses.
#include "kernels.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <string>

#include "guard.h"
#include "shim.h"
#include "tensors.h"

namespace agt {

namespace avx512 { extern const Kernels table; }
namespace avx2 { extern const Kernels table; }
namespace base { extern const Kernels table; }
namespace avx512bf16 {
void panel_bf16(const bf16 *x, int64_t ldx, int64_t rows, const bf16 *w, int64_t k, float *y, const bf16 *next);
void dots_bf16(const bf16 *x, int64_t ldx, int64_t rows, const bf16 *w, int64_t n, int64_t k, float *y);
void attend_bf16(const bf16 *q, const bf16 *kpool, const bf16 *vpool, const AttendArgs &a, char *scratch, float *m, float *z, float *acc);
}
namespace avx512vnni {
void quant_row(const bf16 *x, int64_t k, const QuantRows &to);
void quant_panel(const QuantRows &x, int64_t rows, int64_t k, const QuantPanel &w, const char *base, const QuantPanel *next, float *y);
}
namespace avx2quant {
void quant_row(const bf16 *x, int64_t k, const QuantRows &to);
void quant_panel(const QuantRows &x, int64_t rows, int64_t k, const QuantPanel &w, const char *base, const QuantPanel *next, float *y);
}

namespace {

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq");
}

const Kernels &of_avx2() {
  static const Kernels table = [] {
    Kernels t = avx2::table;
    t.quant_row = avx2quant::quant_row;
    t.quant_panel = avx2quant::quant_panel;
    return t;
  }();
  return table;
}

const Kernels &of_avx512() {
  static const Kernels table = [] {
    Kernels t = avx512::table;
    const bool vnni = __builtin_cpu_supports("avx512vnni");
    t.quant_row = vnni ? avx512vnni::quant_row : avx2quant::quant_row;
    t.quant_panel = vnni ? avx512vnni::quant_panel : avx2quant::quant_panel;
    return t;
  }();
  return table;
}

const Kernels &of_avx512_bf16() {
  static const Kernels table = [] {
    Kernels t = of_avx512();
    t.name = "avx512_bf16";
    t.instructions = Instructions::AVX512_BF16;
    const bool intel = __builtin_cpu_is("intel");
    if (!intel) {  // see panels_wide.h
      t.b.panel = avx512bf16::panel_bf16;
      t.b.attend = avx512bf16::attend_bf16;
    }
    t.b.dots = avx512bf16::dots_bf16;
    t.b.own_panels = false;
    t.b.widens = intel && !__builtin_cpu_supports("amx-bf16");
    return t;
  }();
  return table;
}

std::atomic<const Kernels *> forced{nullptr};  // by agt_use_kernels

}  // namespace

std::atomic<bool> generic{false};  // by agt_use_kernels("none")

const Kernels &kernels() {
  if (auto *k = forced.load(std::memory_order_relaxed)) return *k;
  static const Kernels &best = [&]() -> const Kernels & {
    __builtin_cpu_init();
    if (has_avx512()) return __builtin_cpu_supports("avx512bf16") ? of_avx512_bf16() : of_avx512();
    return has_avx2() ? of_avx2() : base::table;
  }();
  return best;
}

}  // namespace agt

extern "C" {

const char *agt_kernels(void) { return agt::generic ? "none" : agt::kernels().name; }

int agt_use_kernels(const char *name, char **err) {
  return agt::guarded(err, [&] {
    __builtin_cpu_init();
    const std::string want(name);
    const agt::Kernels *table = nullptr;
    if (want == "base") table = &agt::base::table;
    if (want == "avx2" && agt::has_avx2()) table = &agt::of_avx2();
    if (want == "avx512" && agt::has_avx512()) table = &agt::of_avx512();
    TORCH_CHECK(table || want.empty() || want == "none", "this processor has no kernels called ", want);
    agt::forced = table;
    agt::generic = want == "none";
  });
}

}  // extern "C"
