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
#include "codes.h"
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
  int64_t n, k;   // of the weight
  bool floats;    // the panels have float32, else bfloat16
  int64_t head;   // bytes before the panels
  int64_t bytes;  // of the panels

  int64_t count() const { return (n + PANEL - 1) / PANEL; }
  int64_t numbers() const { return floats ? 1 : 2; }              // of a unit
  int64_t units() const { return k / numbers(); }                 // of a row
  int64_t stride() const { return bytes / 4 / count(); }          // units of a panel
  int64_t padding() const { return stride() - units() * PANEL; }  // at the end of a panel: zeros
};

Panels panels_of(const at::Tensor &like) {
  if (const PanelHead *own = own_head(like))
    return {own->n, own->k, own->size == 4, int64_t(sizeof *own), int64_t(like.nbytes() - sizeof *own)};
  TORCH_CHECK(like.is_mkldnn() && like.dim() == 2, "the weight is not packed");
  TORCH_CHECK(like.scalar_type() == at::kFloat || like.scalar_type() == at::kBFloat16, "a weight of ", like.scalar_type());
  return {like.size(0), like.size(1), like.scalar_type() == at::kFloat, 0, at::native::nbytes_from_mkldnn(like)};
}

// Memory for a weight in like's layout: like is one that in_panels holds of.
at::Tensor memory_for(const at::Tensor &like, const Panels &p) {
  at::Tensor out = at::empty({p.head + p.bytes}, at::kByte);
  if (p.head > 0) memcpy(out.data_ptr(), like.const_data_ptr(), size_t(p.head));
  return out;
}

uint32_t *begin_of(at::Tensor &memory, const Panels &p) {
  return reinterpret_cast<uint32_t *>(static_cast<char *>(memory.data_ptr()) + p.head);
}

// Where the rows of a weight come from, in units.
struct Rows {
  int64_t piece = 64;  // units at a time
  virtual ~Rows() = default;
  virtual int64_t count() const = 0;
  virtual void read(int64_t row, int64_t at, int64_t n, uint32_t *to) const = 0;
  virtual void prefetch(int64_t row, int64_t at, int64_t n) const = 0;
};

// Bytes of rows, one row behind the other in each part.
struct StoredRows : Rows {
  std::vector<const char *> rows;
  int64_t count() const override { return int64_t(rows.size()); }
  virtual int64_t bytes_of(int64_t n) const = 0;  // of so many units of a row

  void add(const agt_bytes *parts, int n, int64_t units) {
    const int64_t row = bytes_of(units);
    for (int i = 0; i < n; i++) {
      TORCH_CHECK(parts[i].n % row == 0, parts[i].n, " bytes are no rows of ", row);
      for (int64_t at = 0; at < parts[i].n; at += row) rows.push_back(static_cast<const char *>(parts[i].data) + at);
    }
  }
  // The processor does not prefetch as many rows at once as a panel has.
  void prefetch(int64_t row, int64_t at, int64_t n) const override {
    const char *x = rows[size_t(row)];
    for (int64_t i = bytes_of(at), end = bytes_of(at + n); i < end; i += 64) _mm_prefetch(x + i, _MM_HINT_T1);
  }
};

struct NumberRows : StoredRows {
  bool widen;  // the files have bfloat16, the panels float32
  explicit NumberRows(bool widen) : widen(widen) {}
  int64_t bytes_of(int64_t n) const override { return n * (widen ? 2 : 4); }
  void read(int64_t row, int64_t at, int64_t n, uint32_t *to) const override {
    const char *from = rows[size_t(row)] + bytes_of(at);
    if (!widen) {
      memcpy(to, from, size_t(4 * n));
      return;
    }
    for (int64_t i = 0; i < n; i++) {
      uint16_t x;
      memcpy(&x, from + 2 * i, 2);
      to[i] = uint32_t(x) << 16;
    }
  }
};

struct BlockRows : StoredRows {
  BlockFormat format;
  int64_t numbers;  // of a unit
  BlockRows(const BlockFormat &f, int64_t numbers) : format(f), numbers(numbers) { piece = std::max<int64_t>(64, f.values / numbers); }
  int64_t bytes_of(int64_t n) const override { return n * numbers / format.values * format.bytes; }
  void read(int64_t row, int64_t at, int64_t n, uint32_t *to) const override {
    format.read(rows[size_t(row)] + bytes_of(at), n * numbers / format.values, numbers == 2, to);
  }
};

struct CodeRows : Rows {
  struct Row {
    const agt_codes *of;
    int64_t at;
  };
  std::vector<Row> rows;
  CodeReader reader = code_reader();
  int64_t numbers;  // of a unit
  CodeRows(const agt_codes *parts, int n, int64_t numbers) : numbers(numbers) {
    piece = 256 / numbers;
    for (int i = 0; i < n; i++)
      for (int64_t r = 0; r < parts[i].rows; r++) rows.push_back({&parts[i], r});
  }
  int64_t count() const override { return int64_t(rows.size()); }
  void read(int64_t row, int64_t at, int64_t n, uint32_t *to) const override {
    const auto [of, r] = rows[size_t(row)];
    float x[256 + 16];
    reader.numbers(*of, r, at * numbers, n * numbers, x);
    if (numbers == 1) memcpy(to, x, size_t(4 * n));
    else reader.to_bf16(x, 2 * n, reinterpret_cast<uint16_t *>(to));
  }
  void prefetch(int64_t row, int64_t at, int64_t n) const override {
    const auto [of, r] = rows[size_t(row)];
    const char *x = static_cast<const char *>(of->data) + r * of->stride;
    const int64_t begin = at * numbers * of->bits / 8, end = (at + n) * numbers * of->bits / 8;
    for (int64_t i = begin; i < end; i += 64) _mm_prefetch(x + i, _MM_HINT_T1);
  }
};

void fill_panel(const Panels &p, const Rows &rows, int64_t panel, uint32_t *to) {
  static const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  constexpr int64_t MOST = 256;  // units of a row at a time: whole blocks
  uint32_t part[PANEL * MOST];   // [row][unit]
  const int64_t units = p.units(), piece = rows.piece;
  for (int64_t from = 0; from < units; from += piece) {
    const int64_t n = std::min(piece, units - from), next = from + n;
    for (int64_t r = 0; r < PANEL; r++) {
      const int64_t row = panel * PANEL + r;
      if (next < units && row < p.n) rows.prefetch(row, next, std::min(piece, units - next));
      else if (row + PANEL < p.n) rows.prefetch(row + PANEL, 0, std::min(piece, units));
      if (row < p.n) rows.read(row, from, n, part + r * piece);
      else memset(part + r * piece, 0, size_t(4 * n));
    }
    int64_t i = 0;
    for (; avx512 && i + 16 <= n; i += 16)
      for (int64_t r = 0; r < PANEL; r += 16) transpose_to(part + r * piece + i, piece, to + (from + i) * PANEL + r);
    for (; i < n; i++)
      for (int64_t r = 0; r < PANEL; r++) to[(from + i) * PANEL + r] = part[r * piece + i];
  }
  memset(to + units * PANEL, 0, size_t(p.padding() * 4));
}

void fill_rows(const Panels &p, const Rows &rows, uint32_t *base) {
  TORCH_CHECK(rows.count() == p.n, rows.count(), " rows for a weight of ", p.n);
  at::parallel_for(0, p.count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) fill_panel(p, rows, i, base + i * p.stride());
    _mm_sfence();
  });
}

// Stored rows of transposed matrices are columns of the weight: units of many panels, which are made as the file has them.
void fill_columns(const Panels &p, const agt_codes *parts, int n_parts, uint32_t *base) {
  const CodeReader reader = code_reader();
  for (int64_t i = 0; i < p.count(); i++) memset(base + i * p.stride() + p.units() * PANEL, 0, size_t(p.padding() * 4));
  for (int i = 0; i < n_parts; base += parts[i].cols / PANEL * p.stride(), i++) {
    const agt_codes &c = parts[i];
    at::parallel_for(0, p.units(), 16, [&](int64_t begin, int64_t end) {
      float x[2][CodeReader::MOST + PANEL] = {};
      for (int64_t unit = begin; unit < end; unit++)
        for (int64_t from = 0; from < c.cols; from += CodeReader::MOST) {
          const int64_t n = std::min(CodeReader::MOST, c.cols - from);
          for (int64_t k = 0; k < p.numbers(); k++) {
            reader.numbers(c, unit * p.numbers() + k, from, n, x[k]);
            for (int64_t o = n; o % PANEL; o++) x[k][o] = 0;
          }
          for (int64_t o = 0; o < n; o += PANEL) {
            uint32_t *to = base + (from + o) / PANEL * p.stride() + unit * PANEL;
            if (p.floats) reader.store(x[0] + o, PANEL, to);
            else reader.pair(x[0] + o, x[1] + o, PANEL, to);
          }
        }
      _mm_sfence();
    });
  }
}

void check_code_parts(const Panels &p, const agt_codes *parts, int n) {
  TORCH_CHECK(p.floats || p.k % 2 == 0, p.k, " inputs are no pairs");
  int64_t outputs = 0;
  for (int i = 0; i < n; i++) {
    const agt_codes &c = parts[i];
    check_codes(c);
    TORCH_CHECK(c.count == 1 && c.transposed == parts[0].transposed, "matrices of codes are of two kinds");
    TORCH_CHECK((c.transposed ? c.rows : c.cols) == p.k, c.rows, " by ", c.cols, " codes for ", p.k, " inputs");
    TORCH_CHECK(!c.transposed || outputs % PANEL == 0, "a part begins within a panel, at ", outputs);
    outputs += c.transposed ? c.cols : c.rows;
  }
  TORCH_CHECK(outputs == p.n, outputs, " rows for a weight of ", p.n);
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

void give(const at::Tensor &like, at::Tensor data, agt_tensor *out, agt_tensor *bytes) {
  c10::AutoGradMode off(false);
  at::Tensor weight = weight_like(like, data);
  *out = reinterpret_cast<agt_tensor>(new at::Tensor(std::move(weight)));
  *bytes = reinterpret_cast<agt_tensor>(new at::Tensor(std::move(data)));
}

}  // namespace
}  // namespace agt

extern "C" {

int agt_pack_parts(agt_tensor *out, agt_tensor *bytes, agt_tensor like, const agt_bytes *parts, int n, int dtype, int blocks, char **err) {
  return agt::guarded(err, [&] {
    const at::Tensor model = agt::tensor_of(like);
    const agt::Panels p = agt::panels_of(model);
    at::Tensor data = agt::memory_for(model, p);
    if (blocks >= 0) {
      const agt::BlockFormat format = agt::block_format(blocks);
      TORCH_CHECK(p.k % format.values == 0, "rows of ", p.k, " numbers are no whole blocks");
      agt::BlockRows rows(format, p.numbers());
      rows.add(parts, n, p.units());
      agt::fill_rows(p, rows, agt::begin_of(data, p));
    } else {
      const auto from = at::ScalarType(dtype), to = p.floats ? at::kFloat : at::kBFloat16;
      TORCH_CHECK(from == to || from == at::kBFloat16, "a weight of ", to, " from numbers of ", from);
      agt::NumberRows rows(from != to);
      rows.add(parts, n, p.units());
      agt::fill_rows(p, rows, agt::begin_of(data, p));
    }
    agt::give(model, std::move(data), out, bytes);
  });
}

int agt_pack_codes(agt_tensor *out, agt_tensor *bytes, agt_tensor like, const agt_codes *parts, int n, char **err) {
  return agt::guarded(err, [&] {
    const at::Tensor model = agt::tensor_of(like);
    const agt::Panels p = agt::panels_of(model);
    agt::check_code_parts(p, parts, n);
    at::Tensor data = agt::memory_for(model, p);
    if (parts[0].transposed) agt::fill_columns(p, parts, n, agt::begin_of(data, p));
    else agt::fill_rows(p, agt::CodeRows(parts, n, p.numbers()), agt::begin_of(data, p));
    agt::give(model, std::move(data), out, bytes);
  });
}

}  // extern "C"
