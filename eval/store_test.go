package eval

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"agentcli/traj"

	gocmp "github.com/google/go-cmp/cmp"
)

// fakeSpool is a Spool in memory that has room for so many bytes.
type fakeSpool struct {
	b            []byte
	room         int // 0: enough
	cannotRead   bool
	reads, wrote int
}

var errFull = errors.New("no space left on device")

func (s *fakeSpool) WriteAt(b []byte, at int64) (int, error) {
	if s.room > 0 && int(at)+len(b) > s.room {
		return 0, errFull
	}
	if more := int(at) + len(b) - len(s.b); more > 0 {
		s.b = append(s.b, make([]byte, more)...)
	}
	s.wrote++
	return copy(s.b[at:], b), nil
}

func (s *fakeSpool) ReadAt(b []byte, at int64) (int, error) {
	if s.cannotRead {
		return 0, errors.New("input/output error")
	}
	s.reads++
	return bytes.NewReader(s.b).ReadAt(b, at)
}

// tally plays the attempts into a tally whose pieces are small.
func tally(c Config, piece int, all []*traj.Trajectory) *Tally {
	y := New(c)
	y.done.full = piece
	for _, x := range all {
		y.Add(x)
	}
	return y
}

func text(t *testing.T, y *Tally) string {
	t.Helper()
	var b bytes.Buffer
	if err := reported(t, y).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestAReportFromASpoolIsTheReportFromMemory: whatever is set aside, and wherever the
// spool stops to take it.
func TestAReportFromASpoolIsTheReportFromMemory(t *testing.T) {
	for _, c := range []struct{ n, passK int }{{1, 1}, {5, 4}} {
		all := attempts(200, c.n)
		conf := Config{Dataset: "d", Split: "test", Model: "m", Samples: c.n, PassK: c.passK}
		want := text(t, tally(conf, pieceSize, all))
		for name, room := range map[string]int{"room": 0, "no room at all": 1, "little room": 3000, "room for all but the list": 12_000} {
			t.Run(fmt.Sprint(c.n, " ", name), func(t *testing.T) {
				spool, opened, notices := &fakeSpool{room: room}, 0, 0
				conf.Spool = func() (Spool, error) { opened++; return spool, nil }
				conf.Notice = func(said string) {
					notices++
					if !strings.Contains(said, errFull.Error()) {
						t.Errorf("%q", said)
					}
				}
				y := tally(conf, 700, all)
				if diff := gocmp.Diff(want, text(t, y)); diff != "" {
					t.Error(diff)
				}
				if opened != 1 || (notices == 1) != (room > 0) || notices > 1 || room != 1 && (spool.wrote == 0 || spool.reads == 0) {
					t.Errorf("opened %d times, %d notices, %d reads, %d writes", opened, notices, spool.reads, spool.wrote)
				}
				if again := text(t, y); again != want {
					t.Error("a second report is another")
				}
			})
		}
	}
	conf := Config{Dataset: "d", Samples: 1, PassK: 1, Spool: func() (Spool, error) { return nil, errFull }}
	if text(t, tally(conf, 700, attempts(200, 1))) == "" {
		t.Error("no report without a spool")
	}
}

// TestAReportIsOfWhatIsThere: more trajectories may come after a report.
func TestAReportIsOfWhatIsThere(t *testing.T) {
	all := attempts(150, 4)
	conf := Config{Dataset: "d", Samples: 4, PassK: 4}
	spool := &fakeSpool{}
	y := New(Config{Dataset: "d", Samples: 4, PassK: 4, Spool: func() (Spool, error) { return spool, nil }})
	y.done.full = 900
	for i, x := range all {
		if y.Add(x); i%97 == 50 {
			if got, want := text(t, y), text(t, tally(conf, pieceSize, all[:i+1])); got != want {
				t.Fatal(gocmp.Diff(want, got))
			}
		}
	}
}

// TestASmallEvaluationNeedsNoFile: what fits into one piece stays in memory.
func TestASmallEvaluationNeedsNoFile(t *testing.T) {
	conf := Config{Dataset: "d", Samples: 3, PassK: 3, Spool: func() (Spool, error) { t.Error("it was asked for"); return nil, errFull }}
	text(t, tally(conf, pieceSize, attempts(200, 3)))
}

// TestALostSpoolIsNoReport: half a list would read as a whole one.
func TestALostSpoolIsNoReport(t *testing.T) {
	spool := &fakeSpool{}
	conf := Config{Dataset: "d", Samples: 1, PassK: 1, Spool: func() (Spool, error) { return spool, nil }}
	y := tally(conf, 700, attempts(200, 1))
	r := reported(t, y)
	spool.cannotRead = true
	if err := r.WriteJSON(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "input/output error") {
		t.Errorf("written: %v", err)
	}
	if _, err := y.Report(); err == nil {
		t.Error("a report of what cannot be read")
	}
}

// TestManyOpenProblemsAreParted: a run that is resumed with more attempts begins with
// a part of each problem.
func TestManyOpenProblemsAreParted(t *testing.T) {
	var all []*traj.Trajectory
	for a := range 4 {
		for i := range 300 {
			x := played(fmt.Sprint("p/", i), a, traj.Answered, fmt.Sprint((i*7+a*a)%3), (i+a)%3 == 0)
			all = append(all, x)
		}
	}
	conf := Config{Dataset: "d", Samples: 4, PassK: 4}
	want := text(t, tally(conf, pieceSize, all))
	y := New(conf)
	y.most, y.done.full = 20, 900
	for _, x := range all {
		if y.Add(x); len(y.open) > 21 {
			t.Fatalf("%d are open", len(y.open))
		}
	}
	if diff := gocmp.Diff(want, text(t, y)); diff != "" {
		t.Error(diff)
	}
}

// naturalLess is the order that reports had when their problems were sorted in
// memory, all at once.
func naturalLess(a, b string) bool {
	ia, ib := strings.LastIndexAny(a, "/-_"), strings.LastIndexAny(b, "/-_")
	if a[:ia+1] == b[:ib+1] {
		na, ea := strconv.Atoi(a[ia+1:])
		nb, eb := strconv.Atoi(b[ib+1:])
		if ea == nil && eb == nil && na != nb {
			return na < nb
		}
	}
	return a < b
}

// TestOrderIsTheOldOne for ids as datasets have them.
func TestOrderIsTheOldOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	hex := func() string { return strconv.FormatUint(1<<40|rng.Uint64N(1<<40), 16) }
	for name, id := range map[string]func(i int) string{
		"numbers": func(i int) string { return fmt.Sprint("set/", i*i%1000) },
		"subjects": func(i int) string {
			return fmt.Sprintf("set/%s-%d", []string{"algebra", "geometry", "pre-algebra"}[i%3], i)
		},
		"years":   func(i int) string { return fmt.Sprintf("aime/%d-%s-%d", 2020+i%5, []string{"I", "II"}[i%2], i%15+1) },
		"letters": func(i int) string { return fmt.Sprint("set/t", i) },
		"padded":  func(i int) string { return fmt.Sprintf("set/%05d", i) },
		"hex":     func(int) string { return "set/" + hex() },
		"uuid":    func(int) string { return "set/" + hex() + "-" + hex() },
		"words": func(i int) string {
			return []string{"set/sum_to_n", "set/abs", "set/sum_to_10", "set/x_9", "set/x_10"}[i%5]
		},
		"words, too":  func(i int) string { return []string{"set/abc", "set/1", "set/22", "set/", "set/x-1"}[i%5] },
		"no slash":    func(i int) string { return fmt.Sprint(i) },
		"short hex":   func(int) string { return "set/" + hex()[3:8] },
		"old zeros":   func(i int) string { return fmt.Sprintf("set/%0*d", 1+i%4, i%50) },
		"arithmetic":  func(i int) string { return fmt.Sprintf("arith/%d-%d", i%90+10, i%77+10) },
		"two folders": func(i int) string { return fmt.Sprintf("set-%d/%d", i%12, i) },
	} {
		var o ordering
		var ids [][]byte
		for i := range 400 {
			ids = append(ids, []byte(id(i)))
			o.see(ids[i])
		}
		for _, a := range ids {
			for _, b := range ids {
				want := 0
				if naturalLess(string(a), string(b)) {
					want = -1
				} else if naturalLess(string(b), string(a)) {
					want = 1
				}
				if got := o.compare(a, b); got != want {
					t.Fatalf("%s: %s and %s: %d, want %d", name, a, b, got, want)
				}
			}
		}
	}
}

// FuzzOrderIsAnOrder: pieces that are sorted by it can be merged.
func FuzzOrderIsAnOrder(f *testing.F) {
	f.Add("a/9", "a/10", "a/1x")
	f.Add("a/07", "a/7", "a/+7")
	f.Add("a/9", "a/1-5", "a/10")
	f.Add("9", "99999999999999999999", "1:")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		var o ordering
		ids := [][]byte{[]byte(a), []byte(b), []byte(c)}
		for _, id := range ids {
			o.see(id)
		}
		for _, x := range ids {
			for _, y := range ids {
				if o.compare(x, y) != -o.compare(y, x) || (o.compare(x, y) == 0) != bytes.Equal(x, y) {
					t.Fatalf("%q and %q: %d and %d", x, y, o.compare(x, y), o.compare(y, x))
				}
				for _, z := range ids {
					if o.compare(x, y) < 0 && o.compare(y, z) < 0 && o.compare(x, z) >= 0 {
						t.Fatalf("%q < %q < %q", x, y, z)
					}
				}
			}
		}
	})
}

// TestAProblemTakesNoMemory: of 40,000 problems as many bytes stay as of 20,000.
func TestAProblemTakesNoMemory(t *testing.T) {
	live := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	y := New(Config{Samples: 1, PassK: 1, Spool: func() (Spool, error) { return nowhere{}, nil }})
	var after []int64
	for i := range 40_000 {
		y.Add(played(fmt.Sprint("problem/", i), 0, traj.Answered, "42", true))
		if i == 19_999 || i == 39_999 {
			after = append(after, live())
		}
	}
	if each := float64(after[1]-after[0]) / 20_000; each > 8 {
		t.Errorf("a problem takes %.1f bytes", each)
	}
	runtime.KeepAlive(y)
}

// nowhere is a spool that is not read.
type nowhere struct{ Spool }

func (nowhere) WriteAt(b []byte, _ int64) (int, error) { return len(b), nil }
