//go:build linux

// Images measures the processor time of what a model sees of image files: read, decoded,
// resized, cut into patches, on one thread. bench/images.sh runs it beside transformers' image processor.
//
//	images ROUNDS FILE...
//
// It writes a JSON line for each file: the median of its rounds in milliseconds, whole and
// in parts.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"agentcli/media"
	"agentcli/media/qwen"

	"golang.org/x/sys/unix"
)

// line is what is measured of a file.
type line struct {
	File    string  `json:"file"`
	Whole   float64 `json:"ms"`
	Decode  float64 `json:"decode_ms"`
	Resize  float64 `json:"resize_ms"`
	Patches float64 `json:"patches_ms"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) < 3 {
		return fmt.Errorf("usage: images ROUNDS FILE")
	}
	rounds, err := strconv.Atoi(os.Args[1])
	if err != nil || rounds < 1 {
		return fmt.Errorf("%q rounds; at least 1", os.Args[1])
	}
	runtime.GOMAXPROCS(1)
	config := qwen.DefaultConfig()
	out := json.NewEncoder(os.Stdout)
	for _, path := range os.Args[2:] {
		l := line{File: path}
		var whole, decode, resized, patches []float64
		for range rounds {
			start := processorTime()
			file, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			img, err := media.Decode(file, media.Limits{})
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			decoded := processorTime()
			seen, err := config.Resize(img)
			if err != nil {
				return err
			}
			fitted := processorTime()
			if _, err := config.Patches(seen); err != nil {
				return err
			}
			end := processorTime()
			whole = append(whole, milliseconds(start, end))
			decode = append(decode, milliseconds(start, decoded))
			resized = append(resized, milliseconds(decoded, fitted))
			patches = append(patches, milliseconds(fitted, end))
		}
		l.Whole, l.Decode, l.Resize, l.Patches = median(whole), median(decode), median(resized), median(patches)
		if err := out.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// processorTime is what the process has used: other work on the machine does not count.
func processorTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic(err) // Linux has this clock
	}
	return time.Duration(t.Nano())
}

func milliseconds(from, to time.Duration) float64 { return (to - from).Seconds() * 1000 }

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
