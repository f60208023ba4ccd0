package journal

import (
	"bytes"
	"fmt"
	"testing"
)

// What stands in a record is a zstd frame, whatever its length.
func TestTextsOfAllLengthsAreZstdFrames(t *testing.T) {
	z, err := newEncoder()
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, n := range []int{0, 1, 31, 255, 256, 257, compressFrom - 1, compressFrom, compressFrom + 1, 1 << 17} {
		text := bytes.Repeat([]byte("agent "), n)[:n]
		frame := appendFrame([]byte("head"), text, z)
		if !bytes.HasPrefix(frame, []byte("head")) {
			t.Fatalf("%d bytes: what stood before the frame is gone", n)
		}
		back, err := d.DecodeAll(frame[4:], nil)
		if err != nil || !bytes.Equal(back, text) {
			t.Errorf("%d bytes: %d bytes came back, %v", n, len(back), err)
		}
		if n < compressFrom {
			if _, err := d.DecodeAll(frame[4:len(frame)-1], nil); n > 0 && err == nil {
				t.Errorf("%d bytes: a byte is missing, and nobody says so", n)
			}
		} else if len(frame) > n/2 {
			t.Errorf("%d bytes of repeated text take %d", n, len(frame))
		}
	}
}

func BenchmarkTrajectoryRecord(b *testing.B) {
	z, err := newEncoder()
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{2400, 24000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var text []byte
			for i := 0; len(text) < n; i++ {
				text = fmt.Appendf(text, `{"role":"tool","content":"%d","name":"calculator","tool_call_id":"call_%d"},`, i*i, i)
			}
			for b.Loop() {
				if _, err := trajectoryRecord(entry{id: "task#0"}, text, z); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
