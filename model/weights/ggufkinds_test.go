package weights

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentcli/model/gguf"
)

// modelOfKind writes a Llama of one layer whose matrices are blocks of one type.
func modelOfKind(t *testing.T, path string, kind gguf.TensorType) {
	t.Helper()
	d := decoders[kind]
	var tensors []gguf.Tensor
	add := func(name string, kind gguf.TensorType, dims ...uint64) {
		tensors = append(tensors, gguf.Tensor{Name: name, Type: kind, Dims: dims})
	}
	add("token_embd.weight", kind, 256, 4)
	add("output_norm.weight", gguf.F32, 256)
	for _, name := range []string{"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"} {
		add("blk.0."+name+".weight", kind, 256, 256)
	}
	add("blk.0.attn_norm.weight", gguf.F32, 256)
	add("blk.0.ffn_norm.weight", gguf.F32, 256)
	n := func(key string, v uint32) gguf.KeyValue { return gguf.KeyValue{Key: "llama." + key, V: v} }
	w, err := gguf.Create(path, []gguf.KeyValue{{Key: "general.architecture", V: "llama"},
		n("context_length", 128), n("embedding_length", 256),
		n("block_count", 1), n("feed_forward_length", 256), n("attention.head_count", 4)}, tensors)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tensors {
		size := int(x.Dims[0]) * 4
		if x.Type == kind && len(x.Dims) == 2 {
			size = int(x.Dims[0]*x.Dims[1]) / d.values * d.bytes
		}
		data := manyBlocks(kind.String(), d.bytes, nil)
		for len(data) < size {
			data = append(data, data...)
		}
		if err := w.Write(x.Name, data[:size]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// readAll reads every tensor of a model.
func readAll(m *Model) error {
	for _, name := range m.Names() {
		x, err := m.Tensor(name)
		if err != nil {
			return err
		}
		if int64(len(x.Data)) != count(x.Shape)*x.DType.Size() {
			return fmt.Errorf("%s has %d bytes for %v", name, len(x.Data), x.Shape)
		}
	}
	return nil
}

// A model opens in every type.
func TestModelsOfEveryKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	for kind := range decoders {
		modelOfKind(t, path, kind)
		m, err := Open(path)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if err := readAll(m); err != nil || !strings.HasPrefix(strings.Join(m.Storage(), " "), kind.String()) {
			t.Errorf("%s: %v, stored as %v", kind, err, m.Storage())
		}
		m.Close()
	}
}

// What is read for a type has the numbers of Tensor in that type, also where rows are in another order.
func TestTensorForRoundsAsTensorDoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	for kind := range decoders {
		modelOfKind(t, path, kind)
		m, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range m.Names() {
			for _, d := range []DType{F32, BF16} {
				slow, err := m.Tensor(name)
				if err != nil {
					t.Fatal(err)
				}
				fast, err := m.TensorFor(name, d)
				if err != nil {
					t.Fatal(err)
				}
				if d == BF16 && len(fast.Data) >= len(slow.Data) && kind != gguf.F32 && strings.Contains(name, "proj") {
					t.Errorf("%s: %s is read as %s for %s", kind, name, fast.DType, d)
				}
				want, err := slow.As(d)
				if err != nil {
					t.Fatal(err)
				}
				got, err := fast.As(d)
				if err != nil || !sameNumbers(t, got, want) {
					t.Errorf("%s: %s differs in %s: %v", kind, name, d, err)
				}
			}
		}
		m.Close()
	}
}

// sameNumbers compares bits, but for those of what is no number.
func sameNumbers(t *testing.T, a, b Tensor) bool {
	t.Helper()
	x, err := a.As(F32)
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.As(F32)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(x.Data); i += 4 {
		p, q := le.Uint32(x.Data[i:]), le.Uint32(y.Data[i:])
		if p != q && !(math.IsNaN(float64(math.Float32frombits(p))) && math.IsNaN(float64(math.Float32frombits(q)))) {
			return false
		}
	}
	return true
}

// Reading stops at a limit until more is wanted, and ends when it is closed.
func TestReadAheadStopsAtItsLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	modelOfKind(t, path, gguf.Q8_0)
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, name := range m.Names() {
		if b := m.source.mapped(name); len(b) == 0 || len(b[0]) == 0 {
			t.Errorf("the bytes of %s are not known", name)
		}
	}
	all := NewReadAhead(m, m.Names())
	<-all.done
	all.Close()
	all.Reached(m.Names()[0])

	r := &ReadAhead{places: map[string]int64{"a": 10}, done: make(chan struct{})}
	r.moved.L = &r.mu
	if !r.wait(readAheadBytes - 1) {
		t.Error("nothing is read before anything is wanted")
	}
	passed := make(chan bool)
	go func() { passed <- r.wait(readAheadBytes + 9) }()
	r.Reached("b") // of no place
	select {
	case <-passed:
		t.Error("more than the limit is read before it is wanted")
	case <-time.After(20 * time.Millisecond):
	}
	if r.Reached("a"); !<-passed {
		t.Error("nothing more is read after a tensor was wanted")
	}
	go func() { passed <- r.wait(readAheadBytes + 10) }()
	close(r.done)
	if r.Close(); <-passed {
		t.Error("the reading goes on after Close")
	}
	var none *ReadAhead
	none.Reached("a")
	none.Close()
}
