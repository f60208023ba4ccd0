//go:build libtorch

package torch_test

import (
	"slices"
	"strings"
	"testing"

	"agentcli/internal/torch"
)

func TestScopesFreeWhatTheyOwnAndKeepHandsOn(t *testing.T) {
	w := worker(t, 1)
	before := torch.Live()
	keep := torch.NewScope()
	var kept torch.Tensor
	run(t, w, func(s *torch.Scope) {
		x := s.Float32([]float32{1, 2})
		kept = s.Keep(s.Add(x, x), keep)
		if torch.Live()-before != 2 {
			t.Errorf("%d live, want 2", torch.Live()-before)
		}
		s.Keep(kept, s) // not s's own any more: stays where it is
		s.Free(kept)
		if torch.Live()-before != 2 {
			t.Error("Free freed another scope's tensor")
		}
		s.Free(x)
		s.Free(x)
		s.Free(torch.Tensor{})
		if torch.Live()-before != 1 {
			t.Errorf("%d live after Free, want 1", torch.Live()-before)
		}
		c := s.Child()
		y := c.Mul(kept, kept)
		z := c.Keep(c.Add(y, y), s)
		c.Close()
		if torch.Live()-before != 2 {
			t.Errorf("%d live after the child closed, want 2", torch.Live()-before)
		}
		if got := s.Float32s(z); !slices.Equal(got, []float32{8, 32}) {
			t.Errorf("kept from a child: %v", got)
		}
		// A view outlives the handle of what it looks into.
		a := s.Float32([]float32{1, 2, 3})
		v := s.Narrow(a, 0, 1, 2)
		s.Free(a)
		if got := s.Float32s(v); !slices.Equal(got, []float32{2, 3}) {
			t.Errorf("a view of a freed tensor: %v", got)
		}
	})
	if torch.Live()-before != 1 {
		t.Errorf("%d live after Do, want the kept one", torch.Live()-before)
	}
	run(t, w, func(s *torch.Scope) {
		if got := s.Float32s(kept); !slices.Equal(got, []float32{2, 4}) {
			t.Errorf("kept: %v", got)
		}
		keep.Close()
		keep.Close()
	})
	if torch.Live() != before {
		t.Errorf("%d live", torch.Live()-before)
	}
}

func TestAChildsErrorBecomesTheParents(t *testing.T) {
	const thrown = "in the child"
	w := worker(t, 1)
	err := w.Do(func(s *torch.Scope) error {
		c := s.Child()
		c.Throw(thrown)
		if s.Err() != nil {
			t.Error("the parent has the error before the child closes")
		}
		c.Close()
		if s.Err() == nil || s.Child().Err() == nil {
			t.Error("the error did not reach the parent and its next child")
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), thrown) {
		t.Errorf("%v", err)
	}
}

func TestGradModeIsRestored(t *testing.T) {
	w := worker(t, 1)
	run(t, w, func(s *torch.Scope) {
		x := s.RequiresGrad(s.Full(1, torch.Float32, torch.CPU, 2), true)
		records := func() bool { return s.IsRecorded(s.Mul(x, x)) }
		if records() {
			t.Error("recording without being asked")
		}
		s.WithGrad(func() {
			s.WithGrad(func() {})
			if !records() {
				t.Error("WithGrad does not record, after another within it")
			}
		})
		if records() {
			t.Error("recording after WithGrad")
		}
	})
}
