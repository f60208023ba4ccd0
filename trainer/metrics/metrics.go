// Package metrics writes what a training run measures: metrics.jsonl,
// TensorBoard event files, and a learning curve as SVG. The standard library
// only; it knows no trainer and no model.
package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"
)

// FileName is that of the numbers in a run's folder, a line a step.
const FileName = "metrics.jsonl"

// Log is a run's folder of numbers: metrics.jsonl and events.out.tfevents.*.
// One goroutine uses it.
type Log struct {
	jsonl  *os.File
	events *eventFile
}

// Open starts or continues the log in dir. Lines of metrics.jsonl beyond step
// `keep` belong to steps that an interruption undid, and are dropped; keep 0
// starts afresh. The event files are made again from what is kept, so that no
// step is in them twice. An interruption in here loses nothing.
func Open(dir string, keep int, now time.Time) (*Log, error) {
	path := filepath.Join(dir, FileName)
	old, err := readSteps(path, keep)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(path+".new", bytes.Join(old, nil), 0o644); err != nil {
		return nil, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	stale, err := eventFiles(dir)
	if err != nil {
		f.Close()
		return nil, err
	}
	ev, err := newEventFile(dir, now)
	if err != nil {
		f.Close()
		return nil, err
	}
	l := &Log{jsonl: f, events: ev}
	for _, line := range old {
		if err := l.again(line, now); err != nil {
			l.Close()
			return nil, err
		}
	}
	for _, name := range stale {
		if name == ev.path {
			continue
		}
		if err := os.Remove(name); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// again writes the events of a line that was kept.
func (l *Log) again(line []byte, now time.Time) error {
	var values map[string]*float64
	if err := json.Unmarshal(line, &values); err != nil || values["step"] == nil {
		return err
	}
	step := int64(*values["step"])
	for _, k := range slices.Sorted(maps.Keys(values)) {
		if v := values[k]; k != "step" && v != nil {
			if err := l.events.scalar(k, step, float32(*v), now); err != nil {
				return err
			}
		}
	}
	return l.events.flush()
}

func readSteps(path string, keep int) ([][]byte, error) {
	if keep == 0 {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		if os.IsNotExist(err) {
			return nil, nil
		}
		return nil, err
	}
	var lines [][]byte
	for start := 0; start < len(data); {
		end := start
		for end < len(data) && data[end] != '\n' {
			end++
		}
		if end == len(data) {
			break // a torn last line
		}
		line := data[start : end+1]
		start = end + 1
		var r struct{ Step int }
		if json.Unmarshal(line, &r) == nil && r.Step <= keep {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// Write records one step: a JSON object with "step" first and the keys sorted,
// and one scalar a key for TensorBoard.
func (l *Log) Write(step int, values map[string]float64, now time.Time) error {
	keys := make([]string, 0, len(values))
	for k := range values {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	line := fmt.Appendf(nil, `{"step": %d`, step)
	for _, k := range keys {
		v, err := json.Marshal(values[k])
		if err != nil {
			v = []byte("null") // NaN and infinities have no JSON
		}
		name, err := json.Marshal(k)
		if err != nil {
			return err
		}
		line = fmt.Appendf(line, ", %s: %s", name, v)
	}
	line = append(line, "}\n"...)
	if _, err := l.jsonl.Write(line); err != nil {
		return err
	}
	for _, k := range keys {
		if err := l.events.scalar(k, int64(step), float32(values[k]), now); err != nil {
			return err
		}
	}
	return l.events.flush()
}

// Close closes both files.
func (l *Log) Close() error {
	err := l.jsonl.Close()
	if e := l.events.close(); err == nil {
		err = e
	}
	return err
}
