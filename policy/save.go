//go:build libtorch

package policy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"agentcli/internal/torch"
	"agentcli/model/weights"
)

// Save writes a folder in Hugging Face's layout: config.json,
// generation_config.json, model.safetensors in dtype, the tokenizer and its chat
// template. transformers and vLLM open it. With adapters it is PEFT's layout:
// adapter_config.json, which names the base model, adapter_model.safetensors and
// the tokenizer.
func (t *Trainable) Save(dir string, dtype weights.DType) error {
	return modelWriter{t: t, dtype: dtype, tensor: func(i int) torch.Tensor { return *t.opt.trained[i].tensor }}.save(dir)
}

// SaveAverage is Save of the running mean that KeepAverage began.
func (t *Trainable) SaveAverage(dir string, dtype weights.DType) error {
	if t.opt.ema == nil {
		return errors.New("no average of the parameters was kept")
	}
	return modelWriter{t: t, dtype: dtype, tensor: func(i int) torch.Tensor { return t.opt.ema[i] }}.save(dir)
}

// valueHeadName is the file of a value head that shares its backbone with a
// policy: what reads the folder as a language model must not meet it.
const valueHeadName = "value_head.safetensors"

// openValueHead opens the value head that an earlier run with a shared critic left in a
// model's folder; nil where there is none.
func openValueHead(dir string) (*weights.File, error) {
	f, err := weights.OpenSafetensors(filepath.Join(dir, valueHeadName))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // or a .gguf
		return nil, nil
	}
	return f, err
}

// modelWriter writes the tensors of a model in training.
type modelWriter struct {
	t      *Trainable
	dtype  weights.DType
	td     torch.DType                  // the same, set by save
	tensor func(param int) torch.Tensor // masters, or their average
}

// param is one of those that are trained, or behind them of those that are not, of an encoder.
func (x modelWriter) param(i int) param {
	if n := len(x.t.opt.trained); i >= n {
		return untrainedParams(x.t.net, x.t.vision)[i-n]
	}
	return x.t.opt.trained[i]
}

// value is what is written of it.
func (x modelWriter) value(i int) torch.Tensor {
	if i >= len(x.t.opt.trained) {
		return *x.param(i).tensor
	}
	return x.tensor(i)
}

// save writes a folder in Hugging Face's layout, or in PEFT's.
func (x modelWriter) save(dir string) error {
	t := x.t
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := t.tok.WriteHF(dir, t.template); err != nil {
		return err
	}
	var err error
	if x.td, err = dtypeOf(x.dtype); err != nil {
		return err
	}
	var model, head []int
	for i, p := range t.opt.trained {
		if p.tensor == &t.net.score && t.cfg.Head == HeadBoth {
			head = append(head, i)
		} else {
			model = append(model, i)
		}
	}
	if len(head) > 0 {
		if err := x.write(filepath.Join(dir, valueHeadName), head); err != nil {
			return err
		}
	}
	if t.lora != nil {
		return x.saveAdapter(dir, model)
	}
	for i := range untrainedParams(t.net, t.vision) {
		model = append(model, len(t.opt.trained)+i)
	}
	if err := x.write(filepath.Join(dir, "model.safetensors"), model); err != nil {
		return err
	}
	c := t.model
	if c.Score {
		if c, err = padApart(dir, t.tok, c); err != nil {
			return err
		}
	}
	return c.WriteHF(dir, x.dtype) // last: with config.json the folder is a model
}

// name is what the file calls a tensor.
func (x modelWriter) name(q part) string {
	if x.t.lora != nil {
		return weights.PEFTName(x.t.model, q.name)
	}
	return x.t.model.StoredName(q.name)
}

// infos are the tensors of some parameters, as a file will hold them.
func (x modelWriter) infos(params []int) (infos []weights.TensorInfo) {
	for _, i := range params {
		for _, q := range x.param(i).parts {
			infos = append(infos, weights.TensorInfo{Name: x.name(q), DType: x.dtype, Shape: q.shape})
		}
	}
	return infos
}

// write puts the tensors of some parameters into one file.
func (x modelWriter) write(path string, params []int) error {
	w, err := weights.CreateSafetensors(path, x.infos(params), map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	return x.fill(w, w.Write, params)
}

// fill writes the tensors of some parameters, and closes the file.
func (x modelWriter) fill(w *weights.Writer, write func(name string, data []byte) error, params []int) error {
	err := x.t.worker.Do(func(s *torch.Scope) error {
		for _, i := range params {
			row := int64(0)
			for _, q := range x.param(i).parts {
				c := s.Child()
				data := c.Bytes(c.To(c.Narrow(x.value(i), 0, row, q.shape[0]), x.td, torch.CPU))
				c.Close()
				if s.Err() != nil {
					return s.Err()
				}
				if err := write(x.name(q), data); err != nil {
					return err
				}
				row += q.shape[0]
			}
		}
		return nil
	})
	if err != nil {
		w.Abort()
		return err
	}
	return w.Close()
}

// saveAdapter writes a folder in PEFT's layout.
func (x modelWriter) saveAdapter(dir string, params []int) error {
	w, err := weights.CreateAdapter(dir, x.infos(params))
	if err != nil {
		return err
	}
	if err := x.fill(w.Writer, w.Write, params); err != nil {
		return err
	}
	c := x.t.lora.AdapterConfig
	c.Score = x.t.cfg.Head == HeadScore
	if abs, err := filepath.Abs(x.t.basePath); err == nil {
		c.Base = abs
	}
	return c.WritePEFT(dir, x.t.model) // last: with it the folder is an adapter
}

// stepsName is the number of steps taken, in the state of a model with adapters:
// what they drop follows from it.
const stepsName = "lora.steps"

// SaveState writes the masters and the optimiser's moments, bit for bit; the
// moments are zero before the first step.
func (t *Trainable) SaveState(path string) error {
	if err := t.worker.Do(func(s *torch.Scope) error { t.opt.moments(s); return s.Err() }); err != nil {
		return err
	}
	names, tensors, shapes := t.opt.state()
	dtype := weights.F32
	if t.master == torch.Float64 {
		dtype = weights.F64
	}
	infos := make([]weights.TensorInfo, len(names))
	for i := range names {
		infos[i] = weights.TensorInfo{Name: names[i], DType: dtype, Shape: shapes[i]}
	}
	if t.lora != nil {
		infos = append(infos, weights.TensorInfo{Name: stepsName, DType: weights.I64, Shape: []int64{1}})
	}
	w, err := weights.CreateSafetensors(path, infos, nil)
	if err != nil {
		return err
	}
	if t.lora != nil {
		if err := w.Write(stepsName, binary.LittleEndian.AppendUint64(nil, uint64(t.steps))); err != nil {
			w.Abort()
			return err
		}
	}
	err = t.worker.Do(func(s *torch.Scope) error {
		for i, x := range tensors {
			data := s.Bytes(x)
			if s.Err() != nil {
				return s.Err()
			}
			if err := w.Write(names[i], data); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.Abort()
		return err
	}
	return w.Close()
}

// LoadState reads what SaveState wrote, and drops gradients. A state of another
// model is refused before anything is changed.
func (t *Trainable) LoadState(path string) error {
	f, err := weights.OpenSafetensors(path)
	if err != nil {
		return err
	}
	defer f.Close()
	t.opt.grads = false
	return t.worker.Do(func(s *torch.Scope) error {
		t.opt.moments(s)
		names, tensors, shapes := t.opt.state()
		for i, name := range names {
			data, ok := f.Bytes(name)
			if !ok {
				return fmt.Errorf("%s: tensor %s is missing; %w", path, name, ErrOtherModel)
			}
			if want := elements(shapes[i]) * int64(t.master.Size()); int64(len(data)) != want {
				return fmt.Errorf("%s: tensor %s has %d bytes, this model's has %d; %w", path, name, len(data), want, ErrOtherModel)
			}
		}
		want, steps := len(names), []byte(nil)
		if t.lora != nil {
			want++
			if steps, _ = f.Bytes(stepsName); len(steps) != 8 {
				return fmt.Errorf("%s: tensor %s is missing; %w", path, stepsName, ErrOtherModel)
			}
		}
		if n := f.Len(); n != want {
			return fmt.Errorf("%s: there are %d tensors, this model has %d; %w", path, n, want, ErrOtherModel)
		}
		if t.passes = 0; t.lora != nil {
			t.steps = int64(binary.LittleEndian.Uint64(steps))
		}
		t.opt.clear(s)
		for i, name := range names {
			data, _ := f.Bytes(name)
			c := s.Child()
			c.Copy(tensors[i], c.FromBytes(data, t.master, shapes[i]...))
			c.Close()
			if s.Err() != nil {
				return fmt.Errorf("%s: tensor %s: %w", path, name, s.Err())
			}
		}
		return s.Err()
	})
}
