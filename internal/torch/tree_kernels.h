// Bodies of tree_forward and tree_backward of kernels.h; row_kernels.h includes this
// inside its namespace. Columns are pairs of a query token and a head of the
// group, as in paged_prefill; all sums are float32.

constexpr int64_t TREE_KEYS = 64;

// tree_blocks calls f(n, rows, at, own) for blocks of at most TREE_KEYS keys that some
// column of the item sees: rows[i] is the i-th key, `at` the distance of the first from the
// root; own says that they are the queries' own nodes, which not every column sees.
template <class F>
void tree_blocks(const TreeArgs &a, F f) {
  const int64_t first = a.first_token + a.first_col / a.group, last = a.first_token + (a.first_col + a.cols - 1) / a.group;
  // The first position that any column sees.
  const int64_t low = a.window > 0 ? a.depth + first - a.own[first] - a.window + 1 : 0;
  int32_t rows[TREE_KEYS];
  int64_t n = 0, at = 0;
  for (int64_t s = 0; s < a.path_len; s++)
    for (int64_t i = 0; i < a.path[2 * s + 1]; i++, at++) {
      if (at < low) continue;
      rows[n++] = int32_t(a.path[2 * s] + i);
      if (n == TREE_KEYS) {
        f(n, rows, at - n + 1, false);
        n = 0;
      }
    }
  if (n) f(n, rows, at - n, false);
  int64_t from = a.own[first];
  if (low > a.depth) from += low - a.depth;
  for (; from <= last; from += n) {
    n = std::min(TREE_KEYS, last + 1 - from);
    for (int64_t i = 0; i < n; i++) rows[i] = int32_t(from + i);
    f(n, rows, 0, true);
  }
}

// tree_mask gives masked scores the value `hidden`.
inline void tree_mask(const TreeArgs &a, int64_t n, const int32_t *rows, int64_t at, bool own, const int64_t *token, float *sc, float hidden) {
  for (int64_t t = 0; t < n; t++)
    for (int64_t j = 0; j < COLS; j++) {
      const int64_t q = token[j], mine = a.own[q];
      const bool seen = own ? rows[t] >= mine && rows[t] <= q && (a.window <= 0 || q - rows[t] < a.window)
                            : a.window <= 0 || a.depth + q - mine - (at + t) < a.window;
      if (!seen) sc[t * COLS + j] = hidden;
    }
}

template <class S>
inline void tree_gather(const S *x, int64_t row_stride, int64_t head, int64_t dim, int64_t n, const int32_t *rows, float *out) {
  for (int64_t t = 0; t < n; t++) {
    const S *from = x + rows[t] * row_stride + head * dim;
    for (int64_t d = 0; d < dim; d++) out[t * dim + d] = load(from[d]);
  }
  const int64_t end = (n + MR - 1) / MR * MR;
  for (int64_t i = n * dim; i < end * dim; i++) out[i] = 0;
}

inline int64_t tree_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

template <class S>
void tree_forward(const S *q, const S *k, const S *v, const TreeArgs &a, float *scratch, S *out, float *lse) {
  const int64_t dim = a.dim, heads = a.kv_heads * a.group, width = tree_up(a.cols, NV * WIDTH);
  float *qt = scratch, *kv = qt + dim * COLS, *sc = kv + TREE_KEYS * dim, *o = sc + TREE_KEYS * COLS, *mx = o + dim * COLS,
        *z = mx + COLS, *shrink = z + COLS;
  int64_t token[COLS];
  auto head = [&](int64_t j) { return a.head * a.group + (a.first_col + j) % a.group; };
  for (int64_t j = 0; j < COLS; j++) {
    const int64_t used = std::min(j, a.cols - 1);
    token[j] = a.first_token + (a.first_col + used) / a.group;
    const S *x = q + (token[j] * heads + head(used)) * dim;
    for (int64_t d = 0; d < dim; d++) qt[d * COLS + j] = load(x[d]) * float(a.scale);
    mx[j] = -1e30f;  // finite: the difference of two infinities is no number
    z[j] = 0;
  }
  for (int64_t i = 0; i < dim * COLS; i++) o[i] = 0;
  tree_blocks(a, [&](int64_t n, const int32_t *rows, int64_t at, bool own) {
    tree_gather(k, a.k_stride, a.head, dim, n, rows, kv);
    columns_gemm(tree_up(n, MR), dim, kv, dim, 1, qt, sc, false, width);
    if (own || a.window > 0) tree_mask(a, n, rows, at, own, token, sc, -INFINITY);
    for (int64_t j = 0; j < COLS; j++) shrink[j] = mx[j];
    for (int64_t t = 0; t < n; t++)
      for (int64_t j = 0; j < width; j++) mx[j] = sc[t * COLS + j] > mx[j] ? sc[t * COLS + j] : mx[j];
    for (int64_t j = 0; j < width; j++) {
      shrink[j] = exp_(shrink[j] - mx[j]);
      z[j] *= shrink[j];
    }
    for (int64_t t = 0; t < n; t++)
      for (int64_t j = 0; j < width; j++) {
        float x = sc[t * COLS + j], p = exp_(x - mx[j]);
        p = x < -1e30f ? 0.f : p;
        sc[t * COLS + j] = p;
        z[j] += p;
      }
    for (int64_t d = 0; d < dim; d++)
      for (int64_t j = 0; j < width; j++) o[d * COLS + j] *= shrink[j];
    tree_gather(v, a.v_stride, a.head, dim, n, rows, kv);
    columns_gemm(dim, n, kv, 1, dim, sc, o, true, width);
  });
  for (int64_t j = 0; j < a.cols; j++) {
    const int64_t at = token[j] * heads + head(j);
    S *y = out + at * dim;
    const float inv = 1 / z[j];
    for (int64_t d = 0; d < dim; d++) store(y + d, o[d * COLS + j] * inv);
    lse[at] = mx[j] + logf(z[j]);
  }
}

// With P = exp(S − lse), dP = V·dOᵀ and dS = P·(dP − Σ dO·O): dQ = dS·K, dK = dSᵀ·Q and
// dV = Pᵀ·dO (Dao et al. 2022, appendix B). dk and dv are of one head, [T, dim].
template <class S>
void tree_backward(const S *q, const S *k, const S *v, const S *out, const S *dout, const float *lse, const TreeArgs &a, float *scratch, S *dq,
                   float *dk, float *dv) {
  const int64_t dim = a.dim, heads = a.kv_heads * a.group, width = tree_up(a.cols, NV * WIDTH), chunks = (dim + COLS - 1) / COLS;
  float *qt = scratch, *ot = qt + dim * COLS;                                          // [dim][COLS]: q and dO, columns aside
  float *qr = ot + dim * COLS, *orow = qr + chunks * COLS * COLS;                       // [chunk][column][COLS dims]
  float *kf = orow + chunks * COLS * COLS, *vf = kf + TREE_KEYS * dim;                  // [key][dim]
  float *p = vf + TREE_KEYS * dim, *ds = p + TREE_KEYS * COLS, *part = ds + TREE_KEYS * COLS;
  float *dqt = part + TREE_KEYS * COLS, *l = dqt + dim * COLS, *dot = l + COLS;
  int64_t token[COLS];
  auto head = [&](int64_t j) { return a.head * a.group + (a.first_col + j) % a.group; };
  for (int64_t i = 0; i < 2 * chunks * COLS * COLS; i++) qr[i] = 0;
  for (int64_t j = 0; j < COLS; j++) {
    const bool used = j < a.cols;  // columns of zeros add nothing
    token[j] = a.first_token + (a.first_col + std::min(j, a.cols - 1)) / a.group;
    const int64_t at = token[j] * heads + (used ? head(j) : 0);
    const S *qx = q + at * dim, *ox = out + at * dim, *gx = dout + at * dim;
    float sum = 0;
    for (int64_t d = 0; d < dim; d++) {
      const float qd = used ? load(qx[d]) * float(a.scale) : 0, gd = used ? load(gx[d]) : 0;
      qt[d * COLS + j] = qd;
      ot[d * COLS + j] = gd;
      qr[(d / COLS * COLS + j) * COLS + d % COLS] = qd;
      orow[(d / COLS * COLS + j) * COLS + d % COLS] = gd;
      if (used) sum += gd * load(ox[d]);
    }
    dot[j] = sum;
    l[j] = used ? lse[at] : 0;
  }
  for (int64_t i = 0; i < dim * COLS; i++) dqt[i] = 0;
  tree_blocks(a, [&](int64_t n, const int32_t *rows, int64_t at, bool own) {
    tree_gather(k, a.k_stride, a.head, dim, n, rows, kf);
    tree_gather(v, a.v_stride, a.head, dim, n, rows, vf);
    const int64_t up = tree_up(n, MR);
    columns_gemm(up, dim, kf, dim, 1, qt, p, false, width);
    for (int64_t t = 0; t < n; t++)
      for (int64_t j = 0; j < width; j++) p[t * COLS + j] = exp_(p[t * COLS + j] - l[j]);
    if (own || a.window > 0) tree_mask(a, n, rows, at, own, token, p, 0);
    columns_gemm(up, dim, vf, dim, 1, ot, ds, false, width);
    for (int64_t t = 0; t < n; t++)
      for (int64_t j = 0; j < width; j++) ds[t * COLS + j] = p[t * COLS + j] * (ds[t * COLS + j] - dot[j]);
    columns_gemm(dim, n, kf, 1, dim, ds, dqt, true, width);
    for (int64_t c = 0; c < chunks; c++) {
      const int64_t d0 = c * COLS, some = std::min<int64_t>(COLS, dim - d0);
      for (int x = 0; x < 2; x++) {
        columns_gemm(up, a.cols, x ? p : ds, COLS, 1, (x ? orow : qr) + c * COLS * COLS, part, false);
        float *into = x ? dv : dk;
        for (int64_t t = 0; t < n; t++) {
          float *y = into + rows[t] * dim + d0;
          for (int64_t d = 0; d < some; d++) y[d] += part[t * COLS + d];
        }
      }
    }
  });
  for (int64_t j = 0; j < a.cols; j++) {
    S *y = dq + (token[j] * heads + head(j)) * dim;
    for (int64_t d = 0; d < dim; d++) store(y + d, dqt[d * COLS + j] * float(a.scale));
  }
}

template <class S>
void tree_sum(const float *const *of, int64_t n, int64_t from, int64_t to, int64_t T, int64_t dim, int64_t heads, int64_t head, S *dk, S *dv) {
  for (int x = 0; x < 2; x++)
    for (int64_t t = from; t < to; t++) {
      S *y = (x ? dv : dk) + (t * heads + head) * dim;
      const int64_t at = (x * T + t) * dim;
      for (int64_t d = 0; d < dim; d++) {
        float sum = 0;
        for (int64_t s = 0; s < n; s++) sum += of[s][at + d];
        store(y + d, sum);
      }
    }
}
