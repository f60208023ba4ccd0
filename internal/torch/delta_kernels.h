// Bodies of delta_forward and delta_backward of kernels.h; row_kernels.h includes this inside its
// namespace. The gated delta rule (Yang et al. 2024, "Gated Delta Networks", section 3) of one
// head of the keys and the value heads that share it, over the runs of one tree. With a state S
// [key dim, value dim], a token's q, k and v, its strength β and its decay α:
//
//   u = β(v − α·Sᵀk)    S' = α·S + k·uᵀ    o = S'ᵀq
//
// Runs of few tokens are computed so (delta_tokens). Longer ones are cut into chunks of DELTA_CHUNK
// tokens (delta_chunk). With D[i,j] = α_{j+1}·…·α_i, γ[i] = D[i,0]·α_0, w[j] = D[last,j], and the
// rows of a chunk's tokens in Q, K, V, U and O, a chunk is
//
//   (I + tril(β·KKᵀ·D, −1))·U = β(V − γ·KS)    O = γ·QS + tril(QKᵀ·D)·U    S' = γ[last]·S + Kᵀ(w·U)
//
// Matrices are rows in scratch. Their sizes are multiples of PAD, zeros where there is no
// token and no dimension: such a token has α = 1 and changes nothing. Rows begin an odd number of
// cache lines apart, so that those of a column do not evict each other. All sums are float32, and a
// token's numbers depend neither on the threads nor on runs that are no ancestors.

constexpr int64_t PAD = 16;
inline int64_t delta_up(int64_t n) { return (n + PAD - 1) / PAD * PAD; }
inline int64_t delta_apart(int64_t wide) { return (wide / PAD | 1) * PAD; }
constexpr int64_t SQUARE = DELTA_CHUNK + PAD;  // from row to row of [tokens, tokens]

struct DeltaSizes {
  int64_t keys, values, key_row, value_row, group;
  explicit DeltaSizes(const DeltaArgs &d)
      : keys(delta_up(d.key_dim)), values(delta_up(d.value_dim)), key_row(delta_apart(keys)), value_row(delta_apart(values)),
        group(d.value_heads / d.key_heads) {}
};

inline int64_t delta_row(const DeltaArgs &d) { return 2 * d.key_heads * d.key_dim + d.value_heads * d.value_dim; }  // of qkv
inline int64_t delta_values(const DeltaArgs &d, int64_t token, int64_t head) {  // of qkv, where v is
  return token * delta_row(d) + 2 * d.key_heads * d.key_dim + head * d.value_dim;
}

// ---- products of small matrices ---------------------------------------------------

struct Left {  // A[i,k] is x[i·row + k·column]
  const float *x;
  int64_t row, column;
};
struct Right {  // B[k,j] is x[k·row + j]
  const float *x;
  int64_t row;
};
struct Onto {  // what the product is added to: scale·x[i·row + j]; null: zeros
  const float *x;
  float scale;
};

template <int V>
inline void delta_tile(int64_t inner, Left a, Right b, Onto onto, float *c, int64_t ldc) {
  vec acc[MR][V];
  for (int i = 0; i < MR; i++)
    for (int v = 0; v < V; v++)
      acc[i][v] = onto.x ? onto.scale * *reinterpret_cast<const vec *>(onto.x + i * ldc + v * WIDTH) : vec{};
  for (int64_t k = 0; k < inner; k++) {
    vec bv[V];
    for (int v = 0; v < V; v++) bv[v] = *reinterpret_cast<const vec *>(b.x + k * b.row + v * WIDTH);
    for (int i = 0; i < MR; i++)
      for (int v = 0; v < V; v++) acc[i][v] += a.x[i * a.row + k * a.column] * bv[v];
  }
  for (int i = 0; i < MR; i++)
    for (int v = 0; v < V; v++) *reinterpret_cast<vec *>(c + i * ldc + v * WIDTH) = acc[i][v];
}

// C [rows, cols] = onto + A·B. `onto` may be C.
inline void delta_product(int64_t rows, int64_t cols, int64_t inner, Left a, Right b, Onto onto, float *c, int64_t ldc) {
  for (int64_t j = 0; j < cols;) {
    const int64_t wide = cols - j >= NV * WIDTH ? NV * WIDTH : WIDTH;
    for (int64_t i = 0; i < rows; i += MR) {
      const Left ai{a.x + i * a.row, a.row, a.column};
      const Right bj{b.x + j, b.row};
      const Onto of{onto.x ? onto.x + i * ldc + j : nullptr, onto.scale};
      if (wide > WIDTH) delta_tile<NV>(inner, ai, bj, of, c + i * ldc + j, ldc);
      else delta_tile<1>(inner, ai, bj, of, c + i * ldc + j, ldc);
    }
    j += wide;
  }
}

// The lower triangle of A·B, by blocks: of a block above the diagonal nothing is computed.
inline void delta_lower(int64_t rows, int64_t inner, Left a, Right b, float *c, int64_t ldc) {
  for (int64_t i = 0; i < rows; i += PAD)
    delta_product(PAD, i + PAD, inner, {a.x + i * a.row, a.row, a.column}, b, {}, c + i * ldc, ldc);
}

// C += L·B, or Lᵀ·B, with L [rows, rows] a lower triangle whose blocks above the diagonal are not read.
inline void delta_triangle(int64_t rows, int64_t cols, const float *l, int64_t ldl, bool transposed, Right b, float *c, int64_t ldc) {
  for (int64_t i = 0; i < rows; i += PAD) {
    float *ci = c + i * ldc;
    if (transposed) delta_product(PAD, cols, rows - i, {l + i * ldl + i, 1, ldl}, {b.x + i * b.row, b.row}, {ci, 1}, ci, ldc);
    else delta_product(PAD, cols, i + PAD, {l + i * ldl, ldl, 1}, b, {ci, 1}, ci, ldc);
  }
}

// x of (I − L)·x = x, or (I − Lᵀ)·x = x, in place; L [rows, rows] is strictly lower.
inline void delta_solve(int64_t rows, int64_t cols, const float *l, int64_t ldl, bool transposed, float *x, int64_t ldx) {
  for (int64_t block = 0; block < rows; block += MR) {
    const int64_t i0 = transposed ? rows - MR - block : block;
    float *xi = x + i0 * ldx;
    if (transposed) delta_product(MR, cols, block, {l + (i0 + MR) * ldl + i0, 1, ldl}, {xi + MR * ldx, ldx}, {xi, 1}, xi, ldx);
    else delta_product(MR, cols, block, {l + i0 * ldl, ldl, 1}, {x, ldx}, {xi, 1}, xi, ldx);
    for (int64_t j = 0; j < cols; j += WIDTH) {  // the block itself
      vec row[MR];
      for (int i = 0; i < MR; i++) row[i] = *reinterpret_cast<const vec *>(xi + i * ldx + j);
      if (transposed) {
        for (int i = MR - 1; i >= 0; i--)
          for (int k = i + 1; k < MR; k++) row[i] += l[(i0 + k) * ldl + i0 + i] * row[k];
      } else {
        for (int i = 0; i < MR; i++)
          for (int k = 0; k < i; k++) row[i] += l[(i0 + i) * ldl + i0 + k] * row[k];
      }
      for (int i = 0; i < MR; i++) *reinterpret_cast<vec *>(xi + i * ldx + j) = row[i];
    }
  }
}

inline void delta_transpose(int64_t rows, int64_t cols, const float *x, int64_t ldx, float *y, int64_t ldy) {
  for (int64_t i = 0; i < rows; i += PAD)
    for (int64_t j = 0; j < cols; j++)
      for (int64_t k = 0; k < PAD; k++) y[j * ldy + i + k] = x[(i + k) * ldx + j];
}

inline float delta_dot(const float *x, const float *y, int64_t n) {  // n: a multiple of PAD
  float lanes[LANES] = {0};
  for (int64_t i = 0; i < n; i += LANES)
    for (int j = 0; j < LANES; j++) lanes[j] += x[i + j] * y[i + j];
  return sum(lanes);
}

// ---- tokens -----------------------------------------------------------------------

// Rows of n tokens → x, zeros beyond them.
template <class S>
void delta_rows(const S *from, int64_t stride, int64_t dim, int64_t n, int64_t rows, float *x, int64_t row) {
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < dim; j++) x[i * row + j] = load(from[i * stride + j]);
    for (int64_t j = dim; j < row; j++) x[i * row + j] = 0;
  }
  std::fill_n(x + n * row, (rows - n) * row, 0.f);
}

// Rows become scale·x/‖x‖; inverse[i] is 1/‖x‖.
inline void delta_normalise(const DeltaSizes &z, int64_t rows, float scale, float *x, float *inverse) {
  for (int64_t i = 0; i < rows; i++) {
    float *xi = x + i * z.key_row;
    inverse[i] = 1 / sqrtf(delta_dot(xi, xi, z.keys) + 1e-6f);
    for (int64_t j = 0; j < z.keys; j++) xi[j] *= scale * inverse[i];
  }
}

// The gradient g of y = scale·x/‖x‖ becomes that of x: (scale·g − y·(y·g)/scale)/‖x‖.
inline void delta_normalise_backward(const DeltaSizes &z, int64_t rows, float scale, const float *y, const float *inverse, float *g) {
  for (int64_t i = 0; i < rows; i++) {
    const float *yi = y + i * z.key_row;
    float *gi = g + i * z.key_row;
    const float along = delta_dot(yi, gi, z.keys) / scale;
    for (int64_t j = 0; j < z.keys; j++) gi[j] = inverse[i] * (scale * gi[j] - yi[j] * along);
  }
}

// What the value heads of a group share of a chunk.
struct DeltaKeys {
  int64_t start, n, rows;           // its tokens; rows: a multiple of PAD, but of few tokens
  float *q, *k, *q_norm, *k_norm;   // [rows, keys], and 1/‖q‖ and 1/‖k‖ before
  float *kt;                        // Kᵀ [keys, rows]
  float *qk, *kk;                   // the lower triangles of QKᵀ and KKᵀ [rows, rows]
};

template <class S>
void delta_keys(const DeltaArgs &d, const S *qkv, int64_t start, int64_t n, bool products, DeltaKeys &c) {
  const DeltaSizes z(d);
  c.start = start, c.n = n, c.rows = products ? delta_up(n) : n;
  const S *q = qkv + start * delta_row(d) + d.head * d.key_dim, *k = q + d.key_heads * d.key_dim;
  delta_rows(q, delta_row(d), d.key_dim, n, c.rows, c.q, z.key_row);
  delta_rows(k, delta_row(d), d.key_dim, n, c.rows, c.k, z.key_row);
  delta_normalise(z, c.rows, 1 / sqrtf(float(d.key_dim)), c.q, c.q_norm);
  delta_normalise(z, c.rows, 1, c.k, c.k_norm);
  if (!products) return;
  delta_transpose(c.rows, z.keys, c.k, z.key_row, c.kt, SQUARE);
  delta_lower(c.rows, z.keys, {c.q, z.key_row, 1}, {c.kt, SQUARE}, c.qk, SQUARE);
  delta_lower(c.rows, z.keys, {c.k, z.key_row, 1}, {c.kt, SQUARE}, c.kk, SQUARE);
}

inline float delta_sigmoid(float x) { return 1 / (1 + expf(-x)); }

// A value head's gates of some tokens. Backward has the logs of the decays and their slopes too.
struct DeltaGates {
  float *alpha, *beta, *gamma, *log, *slope;
};

template <class S>
void delta_gates(const DeltaArgs &d, const S *b, const S *a, int64_t head, const DeltaKeys &c, const DeltaGates &to) {
  double all = 1;
  for (int64_t i = 0; i < c.rows; i++) {
    double alpha = 1;
    to.alpha[i] = 1, to.beta[i] = 0, to.log[i] = 0, to.slope[i] = 0;
    if (i < c.n) {
      const float x = load(a[(c.start + i) * d.a_stride + head]) + d.dt_bias[head];
      to.log[i] = d.rate[head] * (x > 20 ? x : log1pf(expf(x)));
      to.slope[i] = d.rate[head] * delta_sigmoid(x);
      to.alpha[i] = float(alpha = exp(double(to.log[i])));
      to.beta[i] = delta_sigmoid(load(b[(c.start + i) * d.b_stride + head]));
    }
    to.gamma[i] = float(all *= alpha);
  }
}

// ---- states -----------------------------------------------------------------------

struct DeltaState {  // x[i·row + j]; null: zeros
  const float *x;
  int64_t row;
};

inline void delta_copy(int64_t keys, int64_t cols, const float *from, int64_t from_row, float *to, int64_t to_row) {
  for (int64_t i = 0; i < keys; i++)
    for (int64_t j = 0; j < cols; j++) to[i * to_row + j] = from[i * from_row + j];
}

// A value head's state in a slot.
template <class F>
F *delta_saved(const DeltaArgs &d, F *slot, int64_t head) { return slot + head * d.key_dim * d.value_dim; }

// ---- few tokens -------------------------------------------------------------------

// The tokens of a run one by one, for TOKEN_COLS columns of the state at a time: those stay in the
// cache, and the state is read and written once. own: its place in scratch, or null.
constexpr int TOKEN_NV = 4, TOKEN_COLS = TOKEN_NV * WIDTH;

template <class S>
void delta_tokens(const DeltaArgs &d, const DeltaKeys &c, const DeltaGates &gate, const S *v, const DeltaState &from, const DeltaRun &run,
                  int64_t head, float *own, float *s, S *out) {
  const DeltaSizes z(d);
  const int64_t keys = d.key_dim;
  for (int64_t first = 0; first < d.value_dim; first += TOKEN_COLS) {
    const int64_t cols = std::min<int64_t>(TOKEN_COLS, d.value_dim - first);
    if (!from.x || cols < TOKEN_COLS) std::fill_n(s, keys * TOKEN_COLS, 0.f);
    if (from.x) delta_copy(keys, cols, from.x + first, from.row, s, TOKEN_COLS);
    for (int64_t t = 0; t < c.n; t++) {
      const float *q = c.q + t * z.key_row, *k = c.k + t * z.key_row;
      const float alpha = gate.alpha[t], beta = gate.beta[t], qk = delta_dot(q, k, z.keys);
      vec qs[TOKEN_NV] = {}, ks[TOKEN_NV] = {};
      for (int64_t i = 0; i < keys; i++)
        for (int x = 0; x < TOKEN_NV; x++) {
          const vec si = *reinterpret_cast<const vec *>(s + i * TOKEN_COLS + x * WIDTH);
          ks[x] += k[i] * si;
          qs[x] += q[i] * si;
        }
      float vo[TOKEN_COLS] = {0};  // v, then o = S'ᵀq = α·Sᵀq + (k·q)·u
      for (int64_t j = 0; j < cols; j++) vo[j] = load(v[t * delta_row(d) + first + j]);
      vec u[TOKEN_NV];
      for (int x = 0; x < TOKEN_NV; x++) {
        vec &both = *reinterpret_cast<vec *>(vo + x * WIDTH);
        u[x] = beta * (both - alpha * ks[x]);
        both = alpha * qs[x] + qk * u[x];
      }
      for (int64_t j = 0; j < cols; j++) store(out + t * d.value_heads * d.value_dim + first + j, vo[j]);
      for (int64_t i = 0; i < keys; i++)
        for (int x = 0; x < TOKEN_NV; x++) {
          vec &si = *reinterpret_cast<vec *>(s + i * TOKEN_COLS + x * WIDTH);
          si = alpha * si + k[i] * u[x];
        }
    }
    if (own) delta_copy(keys, cols, s, TOKEN_COLS, own + first, z.value_row);
    for (int64_t x = 0; x < run.saves; x++) delta_copy(keys, cols, s, TOKEN_COLS, delta_saved(d, run.into[x], head) + first, d.value_dim);
  }
}

// ---- a chunk ----------------------------------------------------------------------

// A value head's part of a chunk.
struct DeltaValues {
  float *decay;  // D [rows, rows], a lower triangle, as the next two
  float *a, *p;  // −tril(β·KKᵀ·D, −1) and tril(QKᵀ·D)
  float *x, *u;  // V − γ·KS and U [rows, values]
  float *o, *wu; // O and w·U [rows, values]
};

inline void delta_triangles(const DeltaKeys &c, const DeltaGates &gate, const DeltaValues &to) {
  for (int64_t i = 0; i < c.rows; i++) {
    float *decay = to.decay + i * SQUARE, *a = to.a + i * SQUARE, *p = to.p + i * SQUARE;
    const float *before = decay - SQUARE, *qk = c.qk + i * SQUARE, *kk = c.kk + i * SQUARE;
    const int64_t wide = delta_up(i + 1);
    for (int64_t j = 0; j < i; j++) decay[j] = before[j] * gate.alpha[i];
    for (int64_t j = i; j < wide; j++) decay[j] = j == i;
    for (int64_t j = 0; j < wide; j++) a[j] = j < i ? -gate.beta[i] * kk[j] * decay[j] : 0;
    for (int64_t j = 0; j < wide; j++) p[j] = qk[j] * decay[j];
  }
}

// Row i of x [rows, values] times by[i] → to, which may be x.
inline void delta_scale(const DeltaSizes &z, int64_t rows, const float *by, const float *x, float *to) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < z.values; j++) to[i * z.value_row + j] = by[i] * x[i * z.value_row + j];
}

// U of the chunk, whose state before is s [keys, values], or null.
template <class S>
void delta_corrections(const DeltaArgs &d, const DeltaKeys &c, const DeltaGates &gate, const S *v, const float *s, const DeltaValues &to) {
  const DeltaSizes z(d);
  if (s) delta_product(c.rows, z.values, z.keys, {c.k, z.key_row, 1}, {s, z.value_row}, {}, to.u, z.value_row);
  delta_rows(v, delta_row(d), d.value_dim, c.n, c.rows, to.x, z.value_row);
  for (int64_t i = 0; s && i < c.rows; i++)
    for (int64_t j = 0; j < z.values; j++) to.x[i * z.value_row + j] -= gate.gamma[i] * to.u[i * z.value_row + j];
  delta_scale(z, c.rows, gate.beta, to.x, to.u);
  delta_solve(c.rows, z.values, to.a, SQUARE, false, to.u, z.value_row);
}

// The state after the chunk → end, which may be s.
inline void delta_end(const DeltaArgs &d, const DeltaKeys &c, const DeltaGates &gate, const DeltaValues &of, const float *s, float *end) {
  const DeltaSizes z(d);
  const int64_t last = c.rows - 1;
  delta_scale(z, c.rows, of.decay + last * SQUARE, of.u, of.wu);
  delta_product(z.keys, z.values, c.rows, {c.k, 1, z.key_row}, {of.wu, z.value_row}, {s, gate.gamma[last]}, end, z.value_row);
}

template <class S>
void delta_chunk(const DeltaArgs &d, const DeltaKeys &c, const DeltaGates &gate, const S *v, const float *s, float *end, const DeltaValues &to,
                 S *out) {
  const DeltaSizes z(d);
  delta_triangles(c, gate, to);
  delta_corrections(d, c, gate, v, s, to);
  if (s) {
    delta_product(c.rows, z.values, z.keys, {c.q, z.key_row, 1}, {s, z.value_row}, {}, to.o, z.value_row);
    delta_scale(z, c.rows, gate.gamma, to.o, to.o);
  } else {
    std::fill_n(to.o, c.rows * z.value_row, 0.f);
  }
  delta_triangle(c.rows, z.values, to.p, SQUARE, false, {to.u, z.value_row}, to.o, z.value_row);
  for (int64_t i = 0; i < c.n; i++)
    for (int64_t j = 0; j < d.value_dim; j++) store(out + i * d.value_heads * d.value_dim + j, to.o[i * z.value_row + j]);
  delta_end(d, c, gate, to, s, end);
}

// ---- forward ----------------------------------------------------------------------

// Scratch is handed out in order. Without memory it is only counted.
struct DeltaScratch {
  float *memory;
  int64_t used = 0;
  float *take(int64_t n) {
    used += n;
    return memory ? memory + used - n : nullptr;
  }
};

struct DeltaForward {
  DeltaKeys keys;
  DeltaGates gates;
  DeltaValues values;
  float *tokens, *states;
  int64_t state;  // floats of one

  DeltaForward(const DeltaArgs &d, DeltaScratch &from) {
    bool chunks = d.parts != nullptr;
    for (int64_t i = 0; i < d.n; i++) chunks = chunks || d.runs[i].len > DELTA_FEW;
    const DeltaSizes z(d);
    const int64_t rows = chunks ? DELTA_CHUNK : DELTA_FEW;
    state = z.keys * z.value_row;
    tokens = from.take(d.key_dim * TOKEN_COLS);
    for (float **x : {&keys.q_norm, &keys.k_norm, &gates.alpha, &gates.beta, &gates.gamma, &gates.log, &gates.slope}) *x = from.take(rows);
    for (float **x : {&keys.q, &keys.k}) *x = from.take(rows * z.key_row);
    if (chunks) {
      keys.kt = from.take(z.keys * SQUARE);
      for (float **x : {&keys.qk, &keys.kk, &values.decay, &values.a, &values.p}) *x = from.take(rows * SQUARE);
      for (float **x : {&values.x, &values.u, &values.o, &values.wu}) *x = from.take(rows * z.value_row);
    }
    states = from.take(d.states * z.group * state);
  }
};

template <class S>
void delta_forward(const S *qkv, const S *b, const S *a, const DeltaArgs &d, float *scratch, S *out) {
  DeltaScratch from{scratch};
  DeltaForward m(d, from);
  const DeltaSizes z(d);
  auto state = [&](int64_t i, int64_t g) { return i < 0 ? nullptr : m.states + (i * z.group + g) * m.state; };
  std::fill_n(m.states, d.states * z.group * m.state, 0.f);
  for (int64_t r = 0; r < d.n; r++) {
    const DeltaRun &run = d.runs[r];
    const bool few = run.len <= DELTA_FEW;
    for (int64_t done = 0; done < run.len; done += m.keys.n) {
      const int64_t start = run.start + done;
      delta_keys(d, qkv, start, std::min<int64_t>(run.len - done, DELTA_CHUNK), !few, m.keys);
      for (int64_t g = 0; g < z.group; g++) {
        const int64_t head = d.head * z.group + g;
        float *own = state(run.state, g);
        DeltaState before{nullptr, z.value_row};
        if (run.parent >= 0) before.x = state(d.runs[run.parent].state, g);
        else if (run.from) before = {delta_saved(d, run.from, head), d.value_dim};
        const S *v = qkv + delta_values(d, start, head);
        S *o = out + (start * d.value_heads + head) * d.value_dim;
        delta_gates(d, b, a, head, m.keys, m.gates);
        if (few) {
          delta_tokens(d, m.keys, m.gates, v, before, run, head, own, m.tokens, o);
          continue;
        }
        if (done == 0 && before.x && before.x != own) delta_copy(d.key_dim, d.value_dim, before.x, before.row, own, z.value_row);
        delta_chunk(d, m.keys, m.gates, v, done > 0 || before.x ? own : nullptr, own, m.values, o);
        if (done + m.keys.n < run.len) continue;
        for (int64_t x = 0; x < run.saves; x++)
          delta_copy(d.key_dim, d.value_dim, own, z.value_row, delta_saved(d, run.into[x], head), d.value_dim);
      }
    }
  }
}

// ---- backward ---------------------------------------------------------------------

struct DeltaBackward : DeltaForward {
  float *dout, *du;            // [rows, values]
  float *ut;                   // Uᵀ [values, rows]
  float *dp, *da, *dqk, *dkk;  // [rows, rows]
  float *dq, *dk, *part;       // [rows, keys]
  float *st;                   // of a state, [values, keys]
  float *dbeta;
  double *dlog;                // what one token adds here another takes away: in float a rest would stay
  float *grads;                // of states

  DeltaBackward(const DeltaArgs &d, DeltaScratch &from) : DeltaForward(d, from) {
    const DeltaSizes z(d);
    const int64_t rows = DELTA_CHUNK;
    for (float **x : {&dout, &du}) *x = from.take(rows * z.value_row);
    ut = from.take(z.values * SQUARE);
    for (float **x : {&dp, &da, &dqk, &dkk}) *x = from.take(rows * SQUARE);
    for (float **x : {&dq, &dk, &part}) *x = from.take(rows * z.key_row);
    st = from.take(z.values * z.key_row);
    dbeta = from.take(rows);
    dlog = reinterpret_cast<double *>(from.take(2 * rows));
    grads = from.take(d.grads * z.group * state);
  }
};

// From the gradients of P = QKᵀ·D and a = −β·KKᵀ·D (m.dp and m.da) those of QKᵀ, KKᵀ and β, and of
// the logs of D[i,j]: log γ[i] − log γ[j].
inline void delta_triangles_backward(const DeltaBackward &m) {
  const DeltaKeys &c = m.keys;
  std::fill_n(m.dlog, c.rows, 0.);
  for (int64_t i = 0; i < c.rows; i++) {
    const int64_t row = i * SQUARE;
    const float *decay = m.values.decay + row, *a = m.values.a + row, *p = m.values.p + row, *kk = c.kk + row, *dp = m.dp + row, *da = m.da + row;
    float *dqk = m.dqk + row, *dkk = m.dkk + row, strength[LANES] = {0};
    double log[LANES] = {0};
    for (int64_t j0 = 0; j0 <= i; j0 += LANES)
      for (int64_t l = 0; l < LANES; l++) {
        const int64_t j = j0 + l;
        const float below = j < i ? da[j] * decay[j] : 0, both = j < i ? dp[j] * p[j] + da[j] * a[j] : 0;
        dqk[j] += dp[j] * decay[j];
        dkk[j] -= m.gates.beta[i] * below;
        strength[l] -= kk[j] * below;
        log[l] += both;
        m.dlog[j] -= both;
      }
    m.dbeta[i] = sum(strength);
    m.dlog[i] += sum(log);
  }
}

// The gradients of a value head's part of a chunk, from those of O (m.dout) and of the state after it
// (end, or null). dq, dk, dqk and dkk are added to, dv is that of V. m.dlog is of the logs of γ, m.dout
// and m.du become those of QS and KS.
inline void delta_chunk_backward(const DeltaArgs &d, const DeltaBackward &m, const float *s, const float *end, float *dv) {
  const DeltaSizes z(d);
  const DeltaKeys &c = m.keys;
  const DeltaGates &gate = m.gates;
  const DeltaValues &of = m.values;
  const int64_t last = c.rows - 1, row = z.value_row;

  // dU = PᵀdO + w·K·dS', and the gradient of the right side, from the transposed system.
  if (end) {
    delta_product(c.rows, z.values, z.keys, {c.k, z.key_row, 1}, {end, row}, {}, m.du, row);
    delta_scale(z, c.rows, of.decay + last * SQUARE, m.du, m.du);
  } else {
    std::fill_n(m.du, c.rows * row, 0.f);
  }
  delta_triangle(c.rows, z.values, of.p, SQUARE, true, {m.dout, row}, m.du, row);
  delta_solve(c.rows, z.values, of.a, SQUARE, true, m.du, row);

  delta_transpose(c.rows, z.values, of.u, row, m.ut, SQUARE);
  delta_lower(c.rows, z.values, {m.dout, row, 1}, {m.ut, SQUARE}, m.dp, SQUARE);
  delta_lower(c.rows, z.values, {m.du, row, 1}, {m.ut, SQUARE}, m.da, SQUARE);
  delta_triangles_backward(m);

  // β(V − γ·KS) and γ·QS.
  for (int64_t i = 0; i < c.rows; i++) m.dbeta[i] += delta_dot(m.du + i * row, of.x + i * row, z.values);
  delta_scale(z, c.rows, gate.beta, m.du, dv);
  for (int64_t i = 0; i < c.rows; i++)
    for (int64_t j = 0; j < z.values; j++) m.du[i * row + j] = -gate.gamma[i] * dv[i * row + j];
  delta_scale(z, c.rows, gate.gamma, m.dout, m.dout);

  // Of a product γ·X·S with rows X, the gradient of log γ[i] is that of X[i], times X[i].
  auto add = [&](const float *left, float sign, const float *x, float *dx) {
    delta_product(c.rows, z.keys, z.values, {left, row, 1}, {m.st, z.key_row}, {}, m.part, z.key_row);
    double all = 0;
    for (int64_t i = 0; i < c.rows; i++) {
      const double log = delta_dot(m.part + i * z.key_row, x + i * z.key_row, z.keys);
      m.dlog[i] += sign * log;
      all += log;
      for (int64_t j = 0; j < z.keys; j++) dx[i * z.key_row + j] += m.part[i * z.key_row + j];
    }
    return all;
  };
  if (s) {
    delta_transpose(z.keys, z.values, s, row, m.st, z.key_row);
    add(m.dout, 1, c.q, m.dq);
    add(m.du, 1, c.k, m.dk);
  }
  if (end) {  // S' = γ[last]·S + Kᵀ(w·U), w[j] = γ[last]/γ[j]
    delta_scale(z, c.rows, of.decay + last * SQUARE, of.u, of.wu);
    delta_transpose(z.keys, z.values, end, row, m.st, z.key_row);
    m.dlog[last] += add(of.wu, -1, c.k, m.dk);
    double kept = 0;
    for (int64_t i = 0; s && i < z.keys; i++) kept += delta_dot(s + i * row, end + i * row, z.values);
    m.dlog[last] += gate.gamma[last] * kept;
  }
}

template <class S>
void delta_backward(const S *qkv, const S *b, const S *a, const S *dout, const DeltaArgs &d, float *scratch, const DeltaGrads<S> &to) {
  DeltaScratch from{scratch};
  DeltaBackward m(d, from);
  const DeltaSizes z(d);
  const DeltaKeys &c = m.keys;
  auto at = [&](float *x, int64_t i, int64_t g) { return i < 0 ? nullptr : x + (i * z.group + g) * m.state; };
  auto begin = [&](const DeltaPart &part, int64_t g) {  // U of the chunk; returns the state before it
    const int64_t head = d.head * z.group + g;
    const float *s = part.parent < 0 ? nullptr : at(m.states, d.parts[part.parent].state, g);
    delta_gates(d, b, a, head, c, m.gates);
    delta_triangles(c, m.gates, m.values);
    delta_corrections(d, c, m.gates, qkv + delta_values(d, part.start, head), s, m.values);
    return s;
  };
  // The states after the chunks that others continue are computed again: kept from forward, they
  // would be larger than all else that a layer keeps.
  for (int64_t i = 0; i < d.n_parts; i++) {
    const DeltaPart &part = d.parts[i];
    if (part.state < 0) continue;
    delta_keys(d, qkv, part.start, part.len, true, m.keys);
    for (int64_t g = 0; g < z.group; g++) {
      const float *s = begin(part, g);
      delta_end(d, c, m.gates, m.values, s, at(m.states, part.state, g));
    }
  }
  for (int64_t i = d.n_parts; i-- > 0;) {
    const DeltaPart &part = d.parts[i];
    delta_keys(d, qkv, part.start, part.len, true, m.keys);
    for (float *x : {m.dqk, m.dkk}) std::fill_n(x, c.rows * SQUARE, 0.f);
    for (float *x : {m.dq, m.dk}) std::fill_n(x, c.rows * z.key_row, 0.f);
    for (int64_t g = 0; g < z.group; g++) {
      const int64_t head = d.head * z.group + g;
      const float *s = begin(part, g), *end = at(m.grads, part.grad, g);
      const int64_t stride = d.value_heads * d.value_dim;
      delta_rows(dout + part.start * stride + head * d.value_dim, stride, d.value_dim, c.n, c.rows, m.dout, z.value_row);
      delta_chunk_backward(d, m, s, end, m.values.o);
      for (int64_t r = 0; r < c.n; r++)
        for (int64_t j = 0; j < d.value_dim; j++) store(to.qkv + delta_values(d, part.start + r, head) + j, m.values.o[r * z.value_row + j]);
      if (s) {  // dS = γ[last]·dS' + Kᵀ·d(KS) + Qᵀ·d(QS), to the state that others may continue too
        float *ds = at(m.grads, part.before, g), *sum = at(m.grads, part.sum, g);
        delta_product(z.keys, z.values, c.rows, {c.k, 1, z.key_row}, {m.du, z.value_row}, {end, m.gates.gamma[c.rows - 1]}, ds, z.value_row);
        delta_product(z.keys, z.values, c.rows, {c.q, 1, z.key_row}, {m.dout, z.value_row}, {ds, 1}, ds, z.value_row);
        for (int64_t j = 0; sum && j < z.keys; j++)
          for (int64_t l = 0; l < z.values; l++) sum[j * z.value_row + l] += ds[j * z.value_row + l];
      }
      double later = 0;
      for (int64_t r = c.rows; r-- > 0;) {
        later += m.dlog[r];  // γ is of all decays up to it
        if (r >= c.n) continue;
        const float beta = m.gates.beta[r], da = float(later * m.gates.slope[r]);
        store(to.b + (part.start + r) * d.value_heads + head, m.dbeta[r] * beta * (1 - beta));
        store(to.a + (part.start + r) * d.value_heads + head, da);
        to.a_log[head] += later * m.gates.log[r];
        to.dt_bias[head] += da;
      }
    }
    // QKᵀ and KKᵀ, of which the lower triangles are used.
    delta_triangle(c.rows, z.keys, m.dqk, SQUARE, false, {c.k, z.key_row}, m.dq, z.key_row);
    delta_triangle(c.rows, z.keys, m.dqk, SQUARE, true, {c.q, z.key_row}, m.dk, z.key_row);
    delta_triangle(c.rows, z.keys, m.dkk, SQUARE, false, {c.k, z.key_row}, m.dk, z.key_row);
    delta_triangle(c.rows, z.keys, m.dkk, SQUARE, true, {c.k, z.key_row}, m.dk, z.key_row);
    delta_normalise_backward(z, c.rows, 1 / sqrtf(float(d.key_dim)), c.q, c.q_norm, m.dq);
    delta_normalise_backward(z, c.rows, 1, c.k, c.k_norm, m.dk);
    for (int64_t r = 0; r < c.n; r++) {
      S *q = to.qkv + (part.start + r) * delta_row(d) + d.head * d.key_dim, *k = q + d.key_heads * d.key_dim;
      for (int64_t j = 0; j < d.key_dim; j++) store(q + j, m.dq[r * z.key_row + j]), store(k + j, m.dk[r * z.key_row + j]);
    }
  }
}

inline int64_t delta_scratch(const DeltaArgs &d) {
  DeltaScratch counted{nullptr};
  if (d.parts) DeltaBackward(d, counted);
  else DeltaForward(d, counted);
  return counted.used;
}
