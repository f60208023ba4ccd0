// Bodies of delta_forward and delta_backward of kernels.h; kernels.inc includes this inside its
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
// token and no dimension: such a token has α = 1 and changes nothing. All sums are float32, and a
// token's numbers depend neither on the threads nor on runs that are no ancestors.

constexpr int64_t PAD = 16;
inline int64_t delta_up(int64_t n) { return (n + PAD - 1) / PAD * PAD; }
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

// Rows of n tokens → x [rows, wide], zeros beyond them.
template <class S>
void delta_rows(const S *from, int64_t stride, int64_t dim, int64_t n, int64_t rows, float *x, int64_t wide) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < wide; j++) x[i * wide + j] = i < n && j < dim ? load(from[i * stride + j]) : 0;
}

// Rows become scale·x/‖x‖; inverse[i] is 1/‖x‖.
inline void delta_normalise(int64_t rows, int64_t wide, float scale, float *x, float *inverse) {
  for (int64_t i = 0; i < rows; i++) {
    float *row = x + i * wide;
    inverse[i] = 1 / sqrtf(delta_dot(row, row, wide) + 1e-6f);
    for (int64_t j = 0; j < wide; j++) row[j] *= scale * inverse[i];
  }
}

// The gradient g of y = scale·x/‖x‖ becomes that of x: (scale·g − y·(y·g)/scale)/‖x‖.
inline void delta_normalise_backward(int64_t rows, int64_t wide, float scale, const float *y, const float *inverse, float *g) {
  for (int64_t i = 0; i < rows; i++) {
    const float *yi = y + i * wide;
    float *gi = g + i * wide;
    const float along = delta_dot(yi, gi, wide) / scale;
    for (int64_t j = 0; j < wide; j++) gi[j] = inverse[i] * (scale * gi[j] - yi[j] * along);
  }
}

// What the value heads of a group share of a chunk.
struct DeltaKeys {
  int64_t start, n, rows;           // its tokens; with those added to the next multiple of PAD
  float *q, *k, *q_norm, *k_norm;   // [rows, keys], and 1/‖q‖ and 1/‖k‖ before
  float *kt;                        // Kᵀ [keys, DELTA_CHUNK]
  float *qk, *kk;                   // the lower triangles of QKᵀ and KKᵀ [rows, DELTA_CHUNK]
};

template <class S>
void delta_keys(const DeltaArgs &d, const S *qkv, int64_t start, int64_t n, bool products, DeltaKeys &c) {
  const int64_t wide = delta_up(d.key_dim), size = DELTA_CHUNK;
  c.start = start, c.n = n, c.rows = delta_up(n);
  const S *q = qkv + start * delta_row(d) + d.head * d.key_dim, *k = q + d.key_heads * d.key_dim;
  delta_rows(q, delta_row(d), d.key_dim, n, c.rows, c.q, wide);
  delta_rows(k, delta_row(d), d.key_dim, n, c.rows, c.k, wide);
  delta_normalise(c.rows, wide, 1 / sqrtf(float(d.key_dim)), c.q, c.q_norm);
  delta_normalise(c.rows, wide, 1, c.k, c.k_norm);
  if (!products) return;
  delta_transpose(c.rows, wide, c.k, wide, c.kt, size);
  delta_lower(c.rows, wide, {c.q, wide, 1}, {c.kt, size}, c.qk, size);
  delta_lower(c.rows, wide, {c.k, wide, 1}, {c.kt, size}, c.kk, size);
}

inline float delta_sigmoid(float x) { return 1 / (1 + expf(-x)); }

// A value head's gates of some tokens. Backward has the logs of the decays and their slopes too.
struct DeltaGates {
  float *alpha, *beta, *gamma, *log, *slope;
};

template <class S>
void delta_gates(const DeltaArgs &d, const S *b, const S *a, int64_t head, const DeltaKeys &c, const DeltaGates &to) {
  float all = 1;
  for (int64_t i = 0; i < c.rows; i++) {
    to.alpha[i] = 1, to.beta[i] = 0, to.log[i] = 0, to.slope[i] = 0;
    if (i < c.n) {
      const float x = load(a[(c.start + i) * d.a_stride + head]) + d.dt_bias[head];
      to.log[i] = d.rate[head] * (x > 20 ? x : log1pf(expf(x)));
      to.slope[i] = d.rate[head] * delta_sigmoid(x);
      to.alpha[i] = expf(to.log[i]);
      to.beta[i] = delta_sigmoid(load(b[(c.start + i) * d.b_stride + head]));
    }
    to.gamma[i] = all *= to.alpha[i];
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
  const int64_t keys = d.key_dim, wide = delta_up(keys);
  for (int64_t first = 0; first < d.value_dim; first += TOKEN_COLS) {
    const int64_t cols = std::min<int64_t>(TOKEN_COLS, d.value_dim - first);
    if (!from.x || cols < TOKEN_COLS) std::fill_n(s, keys * TOKEN_COLS, 0.f);
    if (from.x) delta_copy(keys, cols, from.x + first, from.row, s, TOKEN_COLS);
    for (int64_t t = 0; t < c.n; t++) {
      const float *q = c.q + t * wide, *k = c.k + t * wide, alpha = gate.alpha[t], beta = gate.beta[t], qk = delta_dot(q, k, wide);
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
    if (own) delta_copy(keys, cols, s, TOKEN_COLS, own + first, delta_up(d.value_dim));
    for (int64_t x = 0; x < run.saves; x++) delta_copy(keys, cols, s, TOKEN_COLS, delta_saved(d, run.into[x], head) + first, d.value_dim);
  }
}

// ---- a chunk ----------------------------------------------------------------------

// A value head's part of a chunk.
struct DeltaValues {
  float *decay;    // D [rows, DELTA_CHUNK], a lower triangle, as the next two
  float *a, *p;    // −tril(β·KKᵀ·D, −1) and tril(QKᵀ·D)
  float *x, *u;    // V − γ·KS and U [rows, values]
  float *o, *wu;   // O, w·U [rows, values]
};

inline void delta_triangles(const DeltaKeys &c, const DeltaGates &gate, const DeltaValues &to) {
  const int64_t size = DELTA_CHUNK;
  for (int64_t i = 0; i < c.rows; i++) {
    float *decay = to.decay + i * size, *a = to.a + i * size, *p = to.p + i * size;
    const float *before = decay - size, *qk = c.qk + i * size, *kk = c.kk + i * size;
    const int64_t wide = delta_up(i + 1);
    for (int64_t j = 0; j < wide; j++) decay[j] = j < i ? before[j] * gate.alpha[i] : j == i ? 1 : 0;
    for (int64_t j = 0; j < wide; j++) a[j] = j < i ? -gate.beta[i] * kk[j] * decay[j] : 0;
    for (int64_t j = 0; j < wide; j++) p[j] = qk[j] * decay[j];
  }
}

// U of the chunk, whose state before is s [keys, values], or null.
template <class S>
void delta_corrections(const DeltaArgs &d, const DeltaKeys &c, const DeltaGates &gate, const S *v, const float *s, const DeltaValues &to) {
  const int64_t keys = delta_up(d.key_dim), values = delta_up(d.value_dim);
  if (s) delta_product(c.rows, values, keys, {c.k, keys, 1}, {s, values}, {}, to.u, values);
  delta_rows(v, delta_row(d), d.value_dim, c.n, c.rows, to.x, values);
  for (int64_t i = 0; i < c.rows; i++) {
    float *x = to.x + i * values, *u = to.u + i * values;
    for (int64_t j = 0; j < values; j++) {
      if (s) x[j] -= gate.gamma[i] * u[j];
      u[j] = gate.beta[i] * x[j];
    }
  }
  delta_solve(c.rows, values, to.a, DELTA_CHUNK, false, to.u, values);
}

// to = w·x, rows of values. to may be x.
inline void delta_weigh(const DeltaArgs &d, const DeltaKeys &c, const DeltaValues &of, const float *x, float *to) {
  const int64_t values = delta_up(d.value_dim);
  const float *w = of.decay + (c.rows - 1) * DELTA_CHUNK;
  for (int64_t i = 0; i < c.rows; i++)
    for (int64_t j = 0; j < values; j++) to[i * values + j] = w[i] * x[i * values + j];
}

// The state after the chunk → end, which may be s.
inline void delta_end(const DeltaArgs &d, const DeltaKeys &c, const DeltaGates &gate, const DeltaValues &of, const float *s, float *end) {
  const int64_t keys = delta_up(d.key_dim), values = delta_up(d.value_dim), last = c.rows - 1;
  delta_weigh(d, c, of, of.u, of.wu);
  delta_product(keys, values, c.rows, {c.k, 1, keys}, {of.wu, values}, {s, gate.gamma[last]}, end, values);
}

template <class S>
void delta_chunk(const DeltaArgs &d, const DeltaKeys &c, const DeltaGates &gate, const S *v, const float *s, float *end, const DeltaValues &to,
                 S *out) {
  const int64_t keys = delta_up(d.key_dim), values = delta_up(d.value_dim);
  delta_triangles(c, gate, to);
  delta_corrections(d, c, gate, v, s, to);
  if (s) {
    delta_product(c.rows, values, keys, {c.q, keys, 1}, {s, values}, {}, to.o, values);
    for (int64_t i = 0; i < c.rows; i++)
      for (int64_t j = 0; j < values; j++) to.o[i * values + j] *= gate.gamma[i];
  } else {
    std::fill_n(to.o, c.rows * values, 0.f);
  }
  delta_triangle(c.rows, values, to.p, DELTA_CHUNK, false, {to.u, values}, to.o, values);
  for (int64_t i = 0; i < c.n; i++)
    for (int64_t j = 0; j < d.value_dim; j++) store(out + i * d.value_heads * d.value_dim + j, to.o[i * values + j]);
  if (end) delta_end(d, c, gate, to, s, end);
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
    const int64_t rows = chunks ? DELTA_CHUNK : DELTA_FEW, wide = delta_up(d.key_dim), value = delta_up(d.value_dim);
    state = wide * value;
    tokens = from.take(d.key_dim * TOKEN_COLS);
    for (float **x : {&keys.q_norm, &keys.k_norm, &gates.alpha, &gates.beta, &gates.gamma, &gates.log, &gates.slope}) *x = from.take(rows);
    for (float **x : {&keys.q, &keys.k}) *x = from.take(rows * wide);
    if (chunks) {
      keys.kt = from.take(rows * wide);
      for (float **x : {&keys.qk, &keys.kk, &values.decay, &values.a, &values.p}) *x = from.take(rows * rows);
      for (float **x : {&values.x, &values.u, &values.o, &values.wu}) *x = from.take(rows * value);
    }
    states = from.take(d.states * d.value_heads / d.key_heads * state);
  }
};

template <class S>
void delta_forward(const S *qkv, const S *b, const S *a, const DeltaArgs &d, float *scratch, S *out) {
  DeltaScratch from{scratch};
  DeltaForward m(d, from);
  const int64_t group = d.value_heads / d.key_heads, values = delta_up(d.value_dim);
  auto state = [&](int64_t i, int64_t g) { return i < 0 ? nullptr : m.states + (i * group + g) * m.state; };
  std::fill_n(m.states, d.states * group * m.state, 0.f);
  for (int64_t r = 0; r < d.n; r++) {
    const DeltaRun &run = d.runs[r];
    const bool few = run.len <= DELTA_FEW;
    for (int64_t done = 0; done < run.len; done += m.keys.n) {
      const int64_t start = run.start + done;
      delta_keys(d, qkv, start, std::min<int64_t>(run.len - done, DELTA_CHUNK), !few, m.keys);
      for (int64_t g = 0; g < group; g++) {
        const int64_t head = d.head * group + g;
        float *own = state(run.state, g);
        DeltaState before{nullptr, values};
        if (run.parent >= 0) before.x = state(d.runs[run.parent].state, g);
        else if (run.from) before = {delta_saved(d, run.from, head), d.value_dim};
        const S *v = qkv + delta_values(d, start, head);
        S *o = out + (start * d.value_heads + head) * d.value_dim;
        delta_gates(d, b, a, head, m.keys, m.gates);
        if (few) {
          delta_tokens(d, m.keys, m.gates, v, before, run, head, own, m.tokens, o);
          continue;
        }
        if (done == 0 && before.x && before.x != own) delta_copy(d.key_dim, d.value_dim, before.x, before.row, own, values);
        delta_chunk(d, m.keys, m.gates, v, done > 0 || before.x ? own : nullptr, own, m.values, o);
        if (done + m.keys.n < run.len) continue;
        for (int64_t x = 0; x < run.saves; x++)
          delta_copy(d.key_dim, d.value_dim, own, values, delta_saved(d, run.into[x], head), d.value_dim);
      }
    }
  }
}

// ---- backward ---------------------------------------------------------------------

struct DeltaBackward : DeltaForward {
  float *dout, *du, *ut;                  // [rows, values], Uᵀ [values, DELTA_CHUNK]
  float *dp, *da, *dqk, *dkk;             // [rows, DELTA_CHUNK]
  float *dq, *dk, *part;                  // [rows, keys]
  float *st;                              // of a state [values, keys]
  float *dbeta, *dlog;
  float *grads;                           // of states

  DeltaBackward(const DeltaArgs &d, DeltaScratch &from) : DeltaForward(d, from) {
    const int64_t rows = DELTA_CHUNK, wide = delta_up(d.key_dim), value = delta_up(d.value_dim);
    for (float **x : {&dout, &du, &ut}) *x = from.take(rows * value);
    for (float **x : {&dp, &da, &dqk, &dkk}) *x = from.take(rows * rows);
    for (float **x : {&dq, &dk, &part}) *x = from.take(rows * wide);
    for (float **x : {&dbeta, &dlog}) *x = from.take(rows);
    st = from.take(state);
    grads = from.take(d.grads * d.value_heads / d.key_heads * state);
  }
};

// The gradients of a value head's part of a chunk, from those of O (m.dout) and of the state after it
// (end, or null). dq, dk, dqk and dkk are added to, dv is du; dlog is of the logs of γ, not of the decays.
inline void delta_chunk_backward(const DeltaArgs &d, const DeltaBackward &m, const float *s, const float *end, float *dv) {
  const DeltaKeys &c = m.keys;
  const DeltaGates &gate = m.gates;
  const DeltaValues &of = m.values;
  const int64_t keys = delta_up(d.key_dim), values = delta_up(d.value_dim), size = DELTA_CHUNK, last = c.rows - 1;

  // dU = PᵀdO + w·K·dS', and the gradient of the right side, from the transposed system.
  if (end) {
    delta_product(c.rows, values, keys, {c.k, keys, 1}, {end, values}, {}, m.du, values);
    delta_weigh(d, c, of, m.du, m.du);
  } else {
    std::fill_n(m.du, c.rows * values, 0.f);
  }
  delta_triangle(c.rows, values, of.p, size, true, {m.dout, values}, m.du, values);
  delta_solve(c.rows, values, of.a, size, true, m.du, values);

  // The triangles P = QKᵀ·D and −A = −β·KKᵀ·D.
  delta_transpose(c.rows, values, of.u, values, m.ut, size);
  delta_lower(c.rows, values, {m.dout, values, 1}, {m.ut, size}, m.dp, size);
  delta_lower(c.rows, values, {m.du, values, 1}, {m.ut, size}, m.da, size);
  std::fill_n(m.dlog, c.rows, 0.f);
  for (int64_t i = 0; i < c.rows; i++) {
    const float *decay = of.decay + i * size, *a = of.a + i * size, *p = of.p + i * size, *kk = c.kk + i * size;
    const float *dp = m.dp + i * size, *da = m.da + i * size;
    float *dqk = m.dqk + i * size, *dkk = m.dkk + i * size;
    float strength[LANES] = {0}, log[LANES] = {0};
    for (int64_t j0 = 0; j0 <= i; j0 += LANES)
      for (int64_t l = 0; l < LANES; l++) {
        const int64_t j = j0 + l;
        const float below = j < i ? da[j] * decay[j] : 0, both = dp[j] * p[j] + da[j] * a[j];
        dqk[j] += dp[j] * decay[j];
        dkk[j] -= gate.beta[i] * below;
        strength[l] -= below * kk[j];
        log[l] += j < i ? both : 0;  // D[i,i] is 1
        m.dlog[j] -= j < i ? both : 0;
      }
    m.dbeta[i] = sum(strength) + delta_dot(m.du + i * values, of.x + i * values, values);
    m.dlog[i] += sum(log);
  }

  // β(V − γ·KS) and γ·QS.
  for (int64_t i = 0; i < c.rows; i++)
    for (int64_t j = 0; j < values; j++) {
      float &du = m.du[i * values + j];
      dv[i * values + j] = gate.beta[i] * du;
      du *= -gate.beta[i] * gate.gamma[i];
      m.dout[i * values + j] *= gate.gamma[i];
    }
  auto add = [&](const float *left, float scale, const float *right, float *to) {  // left·Sᵀ
    delta_product(c.rows, keys, values, {left, values, 1}, {m.st, keys}, {}, m.part, keys);
    float all = 0;
    for (int64_t i = 0; i < c.rows; i++) {
      const float log = delta_dot(m.part + i * keys, right + i * keys, keys);
      m.dlog[i] += scale * log;
      all += log;
      for (int64_t j = 0; j < keys; j++) to[i * keys + j] += m.part[i * keys + j];
    }
    return all;
  };
  if (s) {
    delta_transpose(keys, values, s, values, m.st, keys);
    add(m.dout, 1, c.q, m.dq);
    add(m.du, 1, c.k, m.dk);
  }
  if (end) {  // S' = γ[last]·S + Kᵀ(w·U), w[j] = γ[last]/γ[j]
    delta_transpose(keys, values, end, values, m.st, keys);
    m.dlog[last] += add(of.wu, -1, c.k, m.dk);
    if (s) m.dlog[last] += gate.gamma[last] * delta_dot(s, end, keys * values);
  }
}

template <class S>
void delta_backward(const S *qkv, const S *b, const S *a, const S *dout, const DeltaArgs &d, float *scratch, const DeltaGrads<S> &to) {
  DeltaScratch from{scratch};
  DeltaBackward m(d, from);
  const int64_t group = d.value_heads / d.key_heads, keys = delta_up(d.key_dim), values = delta_up(d.value_dim), size = DELTA_CHUNK;
  auto at = [&](float *x, int64_t i, int64_t g) { return i < 0 ? nullptr : x + (i * group + g) * m.state; };
  auto begin = [&](const DeltaPart &part, int64_t g) {  // U of a chunk; returns the state before it
    const int64_t head = d.head * group + g;
    const float *s = part.parent < 0 ? nullptr : at(m.states, d.parts[part.parent].state, g);
    delta_gates(d, b, a, head, m.keys, m.gates);
    delta_triangles(m.keys, m.gates, m.values);
    delta_corrections(d, m.keys, m.gates, qkv + delta_values(d, part.start, head), s, m.values);
    return s;
  };
  // The states after the chunks that others continue are computed again: they are larger than
  // all that forward could keep instead.
  for (int64_t i = 0; i < d.n_parts; i++) {
    const DeltaPart &part = d.parts[i];
    if (part.state < 0) continue;
    delta_keys(d, qkv, part.start, part.len, true, m.keys);
    for (int64_t g = 0; g < group; g++) {
      const float *s = begin(part, g);
      delta_end(d, m.keys, m.gates, m.values, s, at(m.states, part.state, g));
    }
  }
  for (int64_t i = d.n_parts; i-- > 0;) {
    const DeltaPart &part = d.parts[i];
    delta_keys(d, qkv, part.start, part.len, true, m.keys);
    const DeltaKeys &c = m.keys;
    for (float *x : {m.dqk, m.dkk}) std::fill_n(x, c.rows * size, 0.f);
    for (float *x : {m.dq, m.dk}) std::fill_n(x, c.rows * keys, 0.f);
    for (int64_t g = 0; g < group; g++) {
      const int64_t head = d.head * group + g;
      const float *s = begin(part, g), *end = at(m.grads, part.grad, g);
      if (end) delta_weigh(d, c, m.values, m.values.u, m.values.wu);
      delta_rows(dout + (part.start * d.value_heads + head) * d.value_dim, d.value_heads * d.value_dim, d.value_dim, c.n, c.rows, m.dout, values);
      delta_chunk_backward(d, m, s, end, m.values.o);
      for (int64_t r = 0; r < c.n; r++)
        for (int64_t j = 0; j < d.value_dim; j++) store(to.qkv + delta_values(d, part.start + r, head) + j, m.values.o[r * values + j]);
      if (s) {  // dS = γ[last]·dS' + Kᵀ·dKS + Qᵀ·dQS, to the state that others may continue too
        float *ds = at(m.grads, part.before, g), *sum = at(m.grads, part.sum, g);
        delta_product(keys, values, c.rows, {c.k, 1, keys}, {m.du, values}, {end, m.gates.gamma[c.rows - 1]}, ds, values);
        delta_product(keys, values, c.rows, {c.q, 1, keys}, {m.dout, values}, {ds, 1}, ds, values);
        for (int64_t j = 0; sum && j < m.state; j++) sum[j] += ds[j];
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
    delta_triangle(c.rows, keys, m.dqk, size, false, {c.k, keys}, m.dq, keys);
    delta_triangle(c.rows, keys, m.dqk, size, true, {c.q, keys}, m.dk, keys);
    delta_triangle(c.rows, keys, m.dkk, size, false, {c.k, keys}, m.dk, keys);
    delta_triangle(c.rows, keys, m.dkk, size, true, {c.k, keys}, m.dk, keys);
    delta_normalise_backward(c.rows, keys, 1 / sqrtf(float(d.key_dim)), c.q, c.q_norm, m.dq);
    delta_normalise_backward(c.rows, keys, 1, c.k, c.k_norm, m.dk);
    for (int64_t r = 0; r < c.n; r++) {
      S *q = to.qkv + (part.start + r) * delta_row(d) + d.head * d.key_dim, *k = q + d.key_heads * d.key_dim;
      for (int64_t j = 0; j < d.key_dim; j++) store(q + j, m.dq[r * keys + j]), store(k + j, m.dk[r * keys + j]);
    }
  }
}

inline int64_t delta_scratch(const DeltaArgs &d) {
  DeltaScratch counted{nullptr};
  if (d.parts) DeltaBackward(d, counted);
  else DeltaForward(d, counted);
  return counted.used;
}
