package metrics

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// eventFile is a TensorBoard log: TFRecords (length, masked CRC of it, data,
// masked CRC of that) that hold Event protocol buffers, written by hand since
// three messages of five fields are all there is to it.
type eventFile struct {
	path string
	f    *os.File
	w    *bufio.Writer
}

// eventFiles lists the event files of a folder.
func eventFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "events.out.tfevents.") {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}

func newEventFile(dir string, now time.Time) (*eventFile, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	// TensorBoard reads every file of a folder whose name holds "tfevents", in
	// the order of the time stamp.
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d", now.Unix(), host, os.Getpid())
	path := filepath.Join(dir, name)
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	e := &eventFile{path: path, f: f, w: bufio.NewWriter(f)}
	// Event{wall_time: 1, file_version: 3}
	b := double(nil, 1, seconds(now))
	b = bytesField(b, 3, []byte("brain.Event:2"))
	if err := e.record(b); err != nil {
		f.Close()
		return nil, err
	}
	return e, e.flush()
}

// scalar writes Event{wall_time: 1, step: 2, summary: 5{value: 1{tag: 1, simple_value: 2}}}.
func (e *eventFile) scalar(tag string, step int64, v float32, now time.Time) error {
	value := bytesField(nil, 1, []byte(tag))
	value = binary.AppendUvarint(value, 2<<3|5)
	value = binary.LittleEndian.AppendUint32(value, math.Float32bits(v))
	event := double(nil, 1, seconds(now))
	event = binary.AppendUvarint(event, 2<<3)
	event = binary.AppendUvarint(event, uint64(step))
	event = bytesField(event, 5, bytesField(nil, 1, value))
	return e.record(event)
}

func (e *eventFile) record(data []byte) error {
	var head [12]byte
	binary.LittleEndian.PutUint64(head[:8], uint64(len(data)))
	binary.LittleEndian.PutUint32(head[8:], maskedCRC(head[:8]))
	var tail [4]byte
	binary.LittleEndian.PutUint32(tail[:], maskedCRC(data))
	for _, b := range [][]byte{head[:], data, tail[:]} {
		if _, err := e.w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

func (e *eventFile) flush() error { return e.w.Flush() }

func (e *eventFile) close() error {
	err := e.w.Flush()
	if c := e.f.Close(); err == nil {
		err = c
	}
	return err
}

// maskedCRC is TFRecord's: CRC-32C, rotated and offset, so that a CRC of data
// that holds CRCs stays good.
func maskedCRC(b []byte) uint32 {
	c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return (c>>15 | c<<17) + 0xa282ead8
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

func double(b []byte, field uint64, v float64) []byte {
	b = binary.AppendUvarint(b, field<<3|1)
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

func bytesField(b []byte, field uint64, v []byte) []byte {
	b = binary.AppendUvarint(b, field<<3|2)
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}
