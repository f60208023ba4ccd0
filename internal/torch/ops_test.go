//go:build libtorch

package torch_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"agentcli/internal/torch"
)

func (c *opCase) call(s *torch.Scope, in map[string]torch.Tensor, chunk int64) map[string]torch.Tensor {
	one := func(t torch.Tensor) map[string]torch.Tensor { return map[string]torch.Tensor{"out": t} }
	switch c.Op {
	case "add":
		return one(s.Add(in["a"], in["b"]))
	case "mul":
		return one(s.Mul(in["a"], in["b"]))
	case "matmul":
		return one(s.MatMul(in["a"], in["b"]))
	case "index_select":
		return one(s.IndexSelect(in["x"], c.Attrs.Dim, in["i"]))
	case "sum":
		return one(s.Sum(in["x"], s.DType(in["x"])))
	case "linear":
		return one(s.Linear(in["x"], in["w"], in["b"]))
	case "rms_norm":
		return one(s.RMSNorm(in["x"], in["w"], torch.Norm{Eps: c.Attrs.Eps}))
	case "add_rms_norm":
		sum, out := s.AddRMSNorm(in["x"], in["y"], in["w"], torch.Norm{Eps: c.Attrs.Eps})
		return map[string]torch.Tensor{"sum": sum, "out": out}
	case "embedding":
		return one(s.Embedding(in["w"], in["i"]))
	case "rope":
		return one(s.Rope(in["x"], in["cos"], in["sin"], false))
	case "silu_mul":
		return one(s.SiluMul(in["x"]))
	case "tree_attention":
		var nodes []torch.TreeNode
		for _, n := range c.Attrs.Nodes {
			nodes = append(nodes, torch.TreeNode{n[0], n[1], n[2]})
		}
		return one(s.TreeAttention(in["q"], in["k"], in["v"], s.PlanTree(nodes), torch.Look{Window: c.Attrs.Window}))
	case "cached_attention":
		var segs []torch.CachedSegment
		for _, n := range c.Attrs.Segs {
			segs = append(segs, torch.CachedSegment{n[0], n[1], n[2], n[3]})
		}
		return one(s.CachedAttention(in["q"], in["k"], in["v"], in["kpool"], in["vpool"], s.PlanCache(segs, c.Attrs.Blocks),
			torch.Look{Window: c.Attrs.Window}))
	case "head_logprobs":
		lp, ent := s.HeadLogprobs(in["h"], in["w"], in["y"], torch.Tensor{}, chunk)
		return map[string]torch.Tensor{"logprobs": lp, "entropy": ent}
	case "narrow":
		return one(s.Narrow(in["x"], 1, 2, 3))
	case "reshape":
		return one(s.Reshape(in["x"], 3, 4))
	case "cat":
		return one(s.Cat(1, in["a"], in["b"], in["a"]))
	case "clone":
		return one(clone(s, in["x"]))
	}
	s.Fail(fmt.Errorf("no op %s", c.Op))
	return nil
}

func (c *opCase) inputs(s *torch.Scope, d torch.DType, grad bool) map[string]torch.Tensor {
	in := map[string]torch.Tensor{}
	for k, a := range c.In {
		dt := d
		if d == torch.BFloat16 && slices.Contains(c.Acc, k) {
			dt = torch.Float32
		}
		in[k] = a.tensor(s, dt)
		if grad && a.Kind != "i8" && !slices.Contains(c.Acc, k) && !slices.Contains(c.Nograd, k) {
			s.RequiresGrad(in[k], true)
		}
	}
	return in
}

// bf16Bound is how far a bfloat16 result may be from the exact one on the same
// inputs, relative to the largest value. The unit of rounding is u = 2⁻⁸.
func bf16Bound(op string) float64 {
	const u = 1.0 / 256
	switch op {
	case "add_rms_norm": // the sum is rounded, then the norm of the rounded sum
		return 2.5 * u
	case "tree_attention", "cached_attention":
		// libtorch's kernel rounds the scores' weights to bfloat16 before the
		// product with v, and the result: u each, and u for scaled queries.
		return 3 * u
	case "head_logprobs": // the logits are rounded, twice in z_y − logsumexp(z)
		return 3 * u
	case "narrow", "reshape", "cat", "clone", "index_select", "embedding":
		return 0
	}
	return u * 1.01 // everything in float32, rounded once
}

// The whole table for each kernel set: values in three types without recording,
// values and gradients in two with it.
func TestOpsEqualPyTorch(t *testing.T) {
	g := data(t)
	w := worker(t, 1)
	eachKernels(t, func(t *testing.T) {
		before := torch.Live()
		for i := range g.Cases {
			c := &g.Cases[i]
			chunks := []int64{0}
			if c.Op == "head_logprobs" {
				chunks = []int64{1, 4, 9, 100} // of 9 rows
			}
			for _, chunk := range chunks {
				for _, d := range []torch.DType{torch.Float64, torch.Float32, torch.BFloat16} {
					label := fmt.Sprintf("%s/%v", c.Name, d)
					if chunk > 0 {
						label += "/chunk=" + strconv.Itoa(int(chunk))
					}
					t.Run(label, func(t *testing.T) { checkCase(t, w, c, d, chunk) })
				}
			}
		}
		if n := torch.Live(); n != before {
			t.Errorf("%d tensors live after all scopes closed", n-before)
		}
	})
}

func checkCase(t *testing.T, w *torch.Worker, c *opCase, d torch.DType, chunk int64) {
	// float64: the sums are of at most a few hundred terms. float32: exp_ is
	// good to 2e-7 and sums of tens of terms lose a few ulp (6e-8).
	tol, want := map[torch.DType]float64{torch.Float64: 1e-13, torch.Float32: 2e-6, torch.BFloat16: bf16Bound(c.Op)}[d], c.F64
	if d == torch.BFloat16 {
		want = c.BF16
	}
	exact := want.Out
	values := func(s *torch.Scope, how string, out map[string]torch.Tensor) {
		for k, a := range exact {
			near(t, how+" "+k, s.Float64s(out[k]), a.floats(), tol)
			if shape := s.Shape(out[k]); s.Err() == nil && !slices.Equal(shape, a.Shape) {
				t.Errorf("%s %s: shape %v, want %v", how, k, shape, a.Shape)
			}
		}
	}
	run(t, w, func(s *torch.Scope) {
		in := c.inputs(s, d, false)
		before := map[string][]byte{}
		for k, x := range in {
			before[k] = s.Bytes(x)
		}
		values(s, "without grad", c.call(s, in, chunk))
		for k, x := range in {
			if c.Op == "cached_attention" && strings.HasSuffix(k, "pool") {
				checkPool(t, c, k, before[k], before[k[:1]], s.Bytes(x), d)
			} else if !bytes.Equal(before[k], s.Bytes(x)) {
				t.Errorf("the op changed its input %s", k)
			}
		}
	})
	if d == torch.BFloat16 || len(want.Grad) == 0 {
		return
	}
	run(t, w, func(s *torch.Scope) {
		in := c.inputs(s, d, true)
		s.WithGrad(func() {
			out := c.call(s, in, chunk)
			values(s, "with grad", out)
			var loss torch.Tensor
			for k, x := range out {
				if slices.Contains(c.Fixed, k) {
					continue
				}
				part := s.Sum(s.Mul(x, c.Cot[k].tensor(s, d)), d)
				if loss.Defined() {
					part = s.Add(loss, part)
				}
				loss = part
			}
			s.Backward(loss, torch.Tensor{})
		})
		for k, a := range want.Grad {
			near(t, "gradient of "+k, s.Float64s(s.Grad(in[k])), a.floats(), 4*tol)
		}
	})
}

// checkPool sees that exactly the new tokens' slots were written, with k or v.
func checkPool(t *testing.T, c *opCase, k string, before, fresh, after []byte, d torch.DType) {
	shape := c.In[k].Shape
	bs, row := int32(shape[1]), int(shape[2]*shape[3])*d.Size()
	for _, g := range c.Attrs.Segs {
		for j := range g[1] {
			at := g[2] - g[1] + j
			slot := int(c.Attrs.Blocks[g[3]+at/bs]*bs + at%bs)
			copy(before[slot*row:(slot+1)*row], fresh[int(g[0]+j)*row:])
		}
	}
	if !bytes.Equal(before, after) {
		t.Errorf("%s does not hold the new tokens, or something else changed", k)
	}
}

// drop(x)·Aᵀ of an A that is the identity shows what was dropped.
func TestLoRADropsItsShareAndScalesTheRest(t *testing.T) {
	w := torch.NewWorker(2)
	defer w.Close()
	err := w.Do(func(s *torch.Scope) error {
		const n, rows = 64, 400
		eye := make([]float64, n*n)
		for i := range n {
			eye[i*n+i] = 1
		}
		for _, d := range []torch.DType{torch.Float64, torch.Float32, torch.BFloat16} {
			a := s.To(s.Float64(eye, n, n), d, torch.CPU)
			x, zero := s.Full(1, d, torch.CPU, rows, n), s.Full(0, d, torch.CPU, n, n)
			run := func(share float64, seed uint64) []float64 {
				return s.Float64s(s.LoRALinear(x, zero, torch.Tensor{}, []torch.LowRank{{A: a, B: a, Seed: seed}}, 1, share))
			}
			for _, share := range []float64{0, .25, .75} {
				kept := 0
				for _, v := range run(share, 5) {
					switch {
					case v == 0:
					case math.Abs(v-1/(1-share)) > 1e-2:
						return fmt.Errorf("%v, share %v: 1 became %v", d, share, v)
					default:
						kept++
					}
				}
				// Five standard deviations of a binomial.
				if got := float64(kept) / (rows * n); math.Abs(got-(1-share)) > 5*math.Sqrt(share*(1-share)/(rows*n)) {
					t.Errorf("%v, share %v: %v are kept", d, share, got)
				}
			}
			if slices.Equal(run(.5, 1), run(.5, 2)) || !slices.Equal(run(.5, 1), run(.5, 1)) {
				t.Errorf("%v: what is dropped does not follow from the seed", d)
			}
		}
		return s.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
}
