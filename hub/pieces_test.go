package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// rangesHub sends one file of the hub in the ranges of the requests.
type rangesHub struct {
	data   string
	answer func(from, to int) (*http.Response, error) // nil: the range

	mu     sync.Mutex
	ranges []string
}

func (s *rangesHub) RoundTrip(r *http.Request) (*http.Response, error) {
	sum := sha256.Sum256([]byte(s.data))
	resp := &http.Response{StatusCode: http.StatusOK, Request: r, Body: http.NoBody, ContentLength: int64(len(s.data)),
		Header: http.Header{"X-Repo-Commit": {commit}, "Etag": {`"` + hex.EncodeToString(sum[:]) + `"`}}}
	if r.Method == http.MethodHead {
		return resp, nil
	}
	asked := r.Header.Get("Range")
	s.mu.Lock()
	s.ranges = append(s.ranges, asked)
	s.mu.Unlock()
	from, to := 0, len(s.data)
	if low, high, ok := strings.Cut(strings.TrimPrefix(asked, "bytes="), "-"); ok {
		from, _ = strconv.Atoi(low)
		if last, err := strconv.Atoi(high); err == nil {
			to = last + 1
		}
		resp.StatusCode = http.StatusPartialContent
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(s.data)))
	}
	if s.answer != nil {
		if other, err := s.answer(from, to); other != nil || err != nil {
			return other, err
		}
	}
	resp.Body = io.NopCloser(strings.NewReader(s.data[from:to]))
	return resp, nil
}

// start is a client of the hub whose pieces have 1,000 bytes.
func (s *rangesHub) start(t *testing.T) *Hub {
	return &Hub{Endpoint: "http://hub", CacheDir: t.TempDir(), Piece: 1000, Client: &http.Client{Transport: s}}
}

// get downloads the file and compares it.
func (s *rangesHub) get(t *testing.T, h *Hub) {
	t.Helper()
	path, err := h.Download(t.Context(), repo, "a.parquet")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != s.data {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// numbers are 12,340 bytes, each ten of them different.
func numbers() string {
	var b strings.Builder
	for i := range 1234 {
		fmt.Fprintf(&b, "%09d\n", i)
	}
	return b.String()
}

func TestPiecesOfALargeFileAreFetchedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &rangesHub{data: numbers()}
		together := make(chan struct{})
		var mu sync.Mutex
		n := 0
		s.answer = func(int, int) (*http.Response, error) {
			mu.Lock()
			if n++; n == parallelPieces {
				close(together)
			}
			mu.Unlock()
			<-together // never, if one piece waits for another: synctest ends the test then
			return nil, nil
		}
		h := s.start(t)
		last := int64(0)
		h.Progress = func(_ string, done, total int64) {
			if done < last || total != int64(len(s.data)) {
				t.Errorf("%d of %d after %d", done, total, last)
			}
			last = done
		}
		s.get(t, h)
		if len(s.ranges) != 13 || last != int64(len(s.data)) {
			t.Errorf("%d requests, %d bytes reported", len(s.ranges), last)
		}
	})
}

func TestPiecesGoOnBehindWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &rangesHub{data: numbers()}
		s.answer = func(from, _ int) (*http.Response, error) {
			if from == 5000 {
				return nil, errCut
			}
			return nil, nil
		}
		h := s.start(t)
		h.Retries = 1
		var interrupted *InterruptedError
		if _, err := h.Download(t.Context(), repo, "a.parquet"); !errors.As(err, &interrupted) || !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		s.answer, s.ranges = nil, nil
		s.get(t, h)
		slices.Sort(s.ranges)
		if len(s.ranges) != 8 || s.ranges[len(s.ranges)-5] != "bytes=5000-5999" || slices.Contains(s.ranges, "bytes=4000-4999") {
			t.Errorf("asked for %v", s.ranges)
		}
	})
}

func TestAServerWithoutPiecesSendsTheWholeFile(t *testing.T) {
	for name, status := range map[string]int{"a whole file": http.StatusOK, "a refusal": http.StatusRequestedRangeNotSatisfiable} {
		t.Run(name, func(t *testing.T) {
			s := &rangesHub{data: numbers()}
			s.answer = func(from, to int) (*http.Response, error) {
				if from == 0 && to == len(s.data) {
					return nil, nil
				}
				return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(s.data))}, nil
			}
			s.get(t, s.start(t))
			if s.ranges[len(s.ranges)-1] != "" {
				t.Errorf("asked for %v", s.ranges)
			}
		})
	}
}

func TestAPieceThatFallsSilentInterruptsTheDownload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &rangesHub{data: numbers()}
		h := s.start(t)
		h.Retries, h.Stall = 1, time.Hour
		h.Client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Range") == "bytes=3000-3999" {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return s.RoundTrip(r)
		})
		if _, err := h.Download(t.Context(), repo, "a.parquet"); !errors.Is(err, errSilent) {
			t.Error(err)
		}
	})
}
