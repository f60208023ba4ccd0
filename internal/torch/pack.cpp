//go:build libtorch

// Weights in the panels of a decoder (panels.h), straight from the bytes of a file.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "blocks.h"
#include "guard.h"
#include "own_panels.h"
#include "shim.h"
#include "tensors.h"

namespace at::native {  // of libtorch, in none of its headers
int64_t nbytes_from_mkldnn(const Tensor &);
Tensor mkldnn_tensor_from_data_ptr(void *data, IntArrayRef dims, ScalarType dtype, Device device, const uint8_t *metadata, int64_t size);
}  // namespace at::native

namespace agt {
namespace {

constexpr int64_t PANEL = 64;

#pragma GCC push_options
#pragma GCC target("avx512f")
#include "transpose.h"

// to[i·PANEL + r] = from[r·ld + i] for 16 rows of 16 units. The stores bypass the caches: a panel is not read soon.
void transpose_to(const uint32_t *from, int64_t ld, uint32_t *to) {
  __m512i r[16];
  for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_si512(from + i * ld);
  transpose16(r);
  for (int i = 0; i < 16; i++) _mm512_stream_si512(reinterpret_cast<__m512i *>(to + i * PANEL), r[i]);
}
#pragma GCC pop_options

// A panel is units of 4 bytes, one float32 or two bfloat16 of a row, [units][64 rows].
struct Panels {
  std::vector<const char *> row;  // of the files; those beyond the last are null
  int64_t units, padded;          // of a row, and as many as a panel has
  bool floats;                    // the panels have float32, else bfloat16
  bool widen;                     // the files have bfloat16, the panels float32
  const BlockFormat *blocks;      // what the files have; null: numbers
  bool avx512;                    // the processor has it

  void read(const char *from, int64_t at, int64_t n, uint32_t *to) const {
    if (blocks) {
      blocks->read(from + bytes_of(at), n * numbers() / blocks->values, !floats, to);
      return;
    }
    if (!widen) {
      memcpy(to, from + 4 * at, size_t(4 * n));
      return;
    }
    for (int64_t i = 0; i < n; i++) {
      uint16_t x;
      memcpy(&x, from + 2 * (at + i), 2);
      to[i] = uint32_t(x) << 16;
    }
  }

  int64_t numbers() const { return floats ? 1 : 2; }  // of a unit

  // Bytes of so many units of a row in the file.
  int64_t bytes_of(int64_t n) const { return blocks ? n * numbers() / blocks->values * blocks->bytes : n * (widen ? 2 : 4); }

  // The processor does not prefetch as many rows at once as a panel has.
  void prefetch(const char *x, int64_t at, int64_t n) const {
    if (!x) return;
    for (int64_t i = bytes_of(at), end = bytes_of(at + n); i < end; i += 64) _mm_prefetch(x + i, _MM_HINT_T1);
  }

  void fill(int64_t panel, uint32_t *to) const {
    constexpr int64_t MOST = 256;  // units of a row at a time: whole blocks
    const int64_t piece = blocks ? std::max<int64_t>(64, blocks->values / numbers()) : 64;
    uint32_t part[PANEL * MOST];  // [row][unit]
    for (int64_t from = 0; from < units; from += piece) {
      const int64_t n = std::min(piece, units - from), next = from + n;
      for (int64_t r = 0; r < PANEL; r++) {
        const size_t i = size_t(panel * PANEL + r);
        if (next < units) prefetch(row[i], next, std::min(piece, units - next));
        else if (i + PANEL < row.size()) prefetch(row[i + PANEL], 0, std::min(piece, units));
        if (const char *x = row[i]) read(x, from, n, part + r * piece);
        else memset(part + r * piece, 0, size_t(4 * n));
      }
      int64_t i = 0;
      for (; avx512 && i + 16 <= n; i += 16)
        for (int64_t r = 0; r < PANEL; r += 16) transpose_to(part + r * piece + i, piece, to + (from + i) * PANEL + r);
      for (; i < n; i++)
        for (int64_t r = 0; r < PANEL; r++) to[(from + i) * PANEL + r] = part[r * piece + i];
    }
    memset(to + units * PANEL, 0, size_t((padded - units) * PANEL * 4));
  }
};

struct Shape {
  int64_t n, k;
  at::ScalarType type;
  int64_t head, bytes;  // before the panels, and of them
};

Shape shape_of(const at::Tensor &like) {
  if (const PanelHead *own = own_head(like))
    return {own->n, own->k, own->size == 4 ? at::kFloat : at::kBFloat16, int64_t(sizeof *own), int64_t(like.nbytes() - sizeof *own)};
  TORCH_CHECK(like.is_mkldnn() && like.dim() == 2, "the weight is not packed");
  return {like.size(0), like.size(1), like.scalar_type(), 0, at::native::nbytes_from_mkldnn(like)};
}

// Bytes for a weight in like's layout: like is one that in_panels holds of. Where it is oneDNN's, the
// processor has AVX-512.
at::Tensor panels_of(const at::Tensor &like, const agt_bytes *parts, int n_parts, at::ScalarType from, const BlockFormat *blocks) {
  const Shape to = shape_of(like);
  TORCH_CHECK((to.type == at::kFloat || to.type == at::kBFloat16) &&
                  (blocks || from == to.type || (from == at::kBFloat16 && to.type == at::kFloat)),
              "a weight of ", to.type, " from numbers of ", from);
  TORCH_CHECK(!blocks || to.k % blocks->values == 0, "rows of ", to.k, " numbers are no whole blocks");
  const int64_t panels = (to.n + PANEL - 1) / PANEL;
  const int64_t row = blocks ? to.k / blocks->values * blocks->bytes : to.k * int64_t(c10::elementSize(from));
  Panels p{{}, to.k * int64_t(c10::elementSize(to.type)) / 4, to.bytes / 4 / PANEL / panels, to.type == at::kFloat,
           from != to.type, blocks, __builtin_cpu_supports("avx512f") != 0};
  for (int i = 0; i < n_parts; i++) {
    TORCH_CHECK(parts[i].n % row == 0, parts[i].n, " bytes are no rows of ", row);
    for (int64_t at = 0; at < parts[i].n; at += row) p.row.push_back(static_cast<const char *>(parts[i].data) + at);
  }
  TORCH_CHECK(int64_t(p.row.size()) == to.n, p.row.size(), " rows for a weight of ", to.n);
  p.row.resize(size_t(panels * PANEL), nullptr);
  at::Tensor out = at::empty({to.head + to.bytes}, at::kByte);
  if (to.head > 0) memcpy(out.data_ptr(), like.const_data_ptr(), size_t(to.head));
  auto *base = reinterpret_cast<uint32_t *>(static_cast<char *>(out.data_ptr()) + to.head);
  at::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) p.fill(i, base + i * p.padded * PANEL);
    _mm_sfence();
  });
  return out;
}

// The bytes as a weight in like's layout. They must live as long.
at::Tensor weight_like(const at::Tensor &like, at::Tensor &bytes) {
  if (own_head(like)) return bytes;
  static auto layout = c10::Dispatcher::singleton()
                           .findSchemaOrThrow("mkldnn::_get_mkldnn_serialized_md", "")
                           .typed<at::Tensor(const at::Tensor &)>();
  const at::Tensor md = layout.call(like);
  return at::native::mkldnn_tensor_from_data_ptr(bytes.data_ptr(), like.sizes(), like.scalar_type(), at::kCPU,
                                                 static_cast<const uint8_t *>(md.const_data_ptr()), int64_t(md.nbytes()));
}

}  // namespace
}  // namespace agt

extern "C" {

int agt_pack_parts(agt_tensor *out, agt_tensor *bytes, agt_tensor like, const agt_bytes *parts, int n, int dtype, int blocks, char **err) {
  return agt::guarded(err, [&] {
    c10::AutoGradMode off(false);
    const at::Tensor model = agt::tensor_of(like);
    const agt::BlockFormat format = blocks < 0 ? agt::BlockFormat{} : agt::block_format(blocks);
    at::Tensor data = agt::panels_of(model, parts, n, at::ScalarType(dtype), blocks < 0 ? nullptr : &format);
    at::Tensor weight = agt::weight_like(model, data);
    *out = reinterpret_cast<agt_tensor>(new at::Tensor(std::move(weight)));
    *bytes = reinterpret_cast<agt_tensor>(new at::Tensor(std::move(data)));
  });
}

}  // extern "C"
