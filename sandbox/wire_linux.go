package sandbox

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
)

// maxMessage is the most bytes of one message of a zygote.
const maxMessage = 64 << 10

// errForeignReply is a reply that belongs to no code that was sent: the code
// wrote into its control.
var errForeignReply = errors.New("a reply that belongs to another code")

// readGreeting reads a zygote's first message: the modules that it has imported,
// or the error of a refusal. r keeps the bounds of messages.
func readGreeting(r io.Reader) (modules []string, err error) {
	b := make([]byte, maxMessage)
	n, err := r.Read(b)
	if err != nil {
		return nil, err
	}
	var hello struct {
		Ready   string   `json:"ready"`
		Modules []string `json:"modules"`
		Refused string   `json:"refused"`
	}
	if err := json.Unmarshal(b[:n], &hello); err != nil {
		return nil, fmt.Errorf("a greeting of %d bytes: %w", n, err)
	}
	if hello.Refused != "" {
		part, why, _ := strings.Cut(hello.Refused, "\n")
		return nil, reported(Part(part), why)
	}
	if hello.Ready == "" {
		return nil, errors.New("a greeting that is none")
	}
	return hello.Modules, nil
}

// readEnds calls ended for each end of a process that a zygote reports, until
// the zygote is gone or has sent what is no report. r keeps the bounds of messages.
func readEnds(r io.Reader, ended func(id int, status syscall.WaitStatus)) {
	b := make([]byte, maxMessage)
	for {
		n, err := r.Read(b)
		if err != nil || n == 0 {
			return
		}
		var m struct {
			Exit   int    `json:"exit"`
			Status uint32 `json:"status"`
		}
		if json.Unmarshal(b[:n], &m) != nil {
			return
		}
		ended(m.Exit, syscall.WaitStatus(m.Status))
	}
}

// noReady is a process that ended, or was given up, before it was ready.
type noReady struct{ err error }

func (e *noReady) Error() string { return "a process is not ready: " + e.err.Error() }
func (e *noReady) Unwrap() error { return e.err }

// readReady reads a process's first words: nil, the error of a refusal, or noReady.
func readReady(r io.Reader) error {
	var b [1]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return &noReady{err}
	}
	if b[0] == 'R' {
		return nil
	}
	reason, _ := io.ReadAll(io.LimitReader(r, 4096))
	part, why, _ := bytes.Cut(reason, []byte("\n"))
	return reported(Part(part), string(why))
}

// newKey is what the reply to one frame must repeat. It is random: code cannot
// write a reply to the next code ahead.
func newKey() (key [8]byte) {
	_, _ = rand.Read(key[:]) // never fails
	return key
}

// frame is one code as a process reads it; keep says that it goes on afterwards.
func frame(code string, key [8]byte, keep bool) []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, len(code)+13), uint32(len(code)))
	if keep {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = append(b, key[:]...)
	return append(b, code...)
}

// readReply reads the reply to the frame with this key: the exit code of its code.
func readReply(r io.Reader, key [8]byte) (status int, err error) {
	var b [13]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, err
	}
	if b[0] != 'D' || [8]byte(b[1:9]) != key {
		return 0, errForeignReply
	}
	return int(b[9]), nil
}
