package weights

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

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
