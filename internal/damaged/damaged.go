// Package damaged gives damaged versions of good files to the code that opens them: each has
// to work or to fail with an error of one line, in bounded time and memory. Only tests
// import it.
package damaged

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"
)

// What opening one file may take.
const (
	MaxTime  = 5 * time.Second
	MaxBytes = 2 << 30 // that are allocated, all together
)

// Open opens a damaged version of the file of that name and reads all of it.
type Open func(name string, file []byte) error

// Files opens n damaged versions of the files, each file's in turn, and returns how many were
// an error. A fault that is not found by Open's error, a panic, an error of several lines, and
// more time or memory than allowed fail the test. The damage is the same in each run.
func Files(t *testing.T, n int, files map[string][]byte, open Open) (failed int) {
	t.Helper()
	return Versions(t, n, files, damage, open)
}

// Versions is Files with damage of the caller's own; damage may write over file.
func Versions(t *testing.T, n int, files map[string][]byte, damage func(rng *rand.Rand, file []byte) []byte, open Open) (failed int) {
	t.Helper()
	names := slices.Sorted(maps.Keys(files))
	rng := rand.New(rand.NewPCG(1, 2))
	var slowest time.Duration
	var most uint64
	for i := range n {
		name := names[i%len(names)]
		file := damage(rng, slices.Clone(files[name]))
		before, begin := allocated(), time.Now()
		done := make(chan error, 1)
		go func() {
			defer func() {
				if p := recover(); p != nil {
					done <- panicError(fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
				}
			}()
			done <- open(name, file)
		}()
		select {
		case err := <-done:
			slowest, most = max(slowest, time.Since(begin)), max(most, allocated()-before)
			if p, ok := err.(panicError); ok { //nolint:errorlint // it is made above
				t.Fatalf("%s, damaged file %d: %s", name, i, p)
			}
			if err != nil {
				failed++
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("%s, damaged file %d: more than one line: %q", name, i, err)
				}
			}
			if used := allocated() - before; used > MaxBytes {
				t.Errorf("%s, damaged file %d: %d bytes were allocated", name, i, used)
			}
		case <-time.After(MaxTime):
			t.Fatalf("%s, damaged file %d: opening takes longer than %v", name, i, MaxTime)
		}
	}
	t.Logf("%d damaged files, %d errors; at most %v and %d bytes a file", n, failed, slowest, most)
	return failed
}

type panicError string

func (p panicError) Error() string { return string(p) }

// allocated is what the process has allocated so far, in bytes.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// begin is how many bytes at a file's begin are damaged more often: its header.
const begin = 4096

// damage changes up to three places of a file.
func damage(rng *rand.Rand, b []byte) []byte {
	for range 1 + rng.IntN(3) {
		if len(b) == 0 {
			break
		}
		at := rng.IntN(len(b))
		if rng.IntN(3) > 0 {
			at = rng.IntN(min(len(b), begin))
		}
		switch rng.IntN(9) {
		case 0:
			b[at] ^= 1 << rng.IntN(8)
		case 1:
			b[at] = byte(rng.IntN(256))
		case 2:
			b = b[:at]
		case 3: // a length that no file has
			copy(b[at:], lengths[rng.IntN(len(lengths))])
		case 4: // a part is gone
			b = slices.Delete(b, at, min(len(b), at+1+rng.IntN(64)))
		case 5: // a part is there twice
			b = slices.Insert(b, at, b[at:min(len(b), at+1+rng.IntN(64))]...)
		case 6: // a digit becomes another one: the length stays
			if i := digit(b, at); i < len(b) {
				b[i] = "0123456789"[rng.IntN(10)]
			}
		default: // a number becomes another one
			if i := digit(b, at); i < len(b) {
				end := i
				for end < len(b) && b[end] >= '0' && b[end] <= '9' {
					end++
				}
				b = slices.Replace(b, i, end, []byte(numbers[rng.IntN(len(numbers))])...)
			}
		}
	}
	return b
}

var (
	lengths = []string{"\xff\xff\xff\xff\xff\xff\xff\xff", "\xff\xff\xff\xff", "\xff\xff\xff\x7f", "\x00\x00\x00\x00\x00\x00\x00\x01",
		"\x00\x00\x00\x80\x00\x00\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x00"}
	numbers = []string{"-1", "0", "1", "0.5", "1e308", "-1e308", "2147483648", "1099511627776", "9223372036854775807",
		"99999999999999999999", "null", `"x"`, "[]", "{}"}
)

// digit is the place of the next digit from at on.
func digit(b []byte, at int) int {
	for at < len(b) && (b[at] < '0' || b[at] > '9') {
		at++
	}
	return at
}
