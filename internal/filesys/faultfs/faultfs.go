// Package faultfs is a file system in memory for tests: it fails calls as it is
// told, and a crash leaves of what was not synced what a real one may leave:
// writes that are lost, torn at sectors, out of order or replaced by zeros, and
// names that were not made durable. It is in layer 0.
package faultfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"agentcli/internal/filesys"
)

// ErrCrashed is the error of every call between a crash and Restart, and of every
// file that was open when it happened.
var ErrCrashed = errors.New("the machine has crashed")

// Op is a call that may fail.
type Op struct {
	Kind string // open, read, write, sync, truncate, rename, link, remove, syncdir
	Name string
	N    int // how many calls there were before it since Restart
}

// sector is what a disk writes whole or not at all.
const sector = 512

// FS is a file system in memory. It is safe for concurrent use.
type FS struct {
	// Fault decides about each call: nil lets it pass, ErrCrashed crashes the
	// machine, any other error is the call's. A write that fails has written a part.
	// A sync that fails may have lost what it should have synced. nil: none fails.
	Fault func(Op) error

	mu      sync.Mutex
	rng     *rand.Rand
	names   map[string]*inode // now
	durable map[string]*inode // what a crash leaves at least
	moves   []move            // not durable yet, oldest first
	crashed bool
	life    int // how often it was restarted
	ops     int
}

// move is a change of names that is not durable yet.
type move struct {
	dir string
	do  func(names map[string]*inode)
}

type inode struct {
	data    []byte  // now
	synced  []byte  // what a crash leaves at least
	pending []write // since the last sync
	locked  bool
}

// write is a change of a file that is not synced yet.
type write struct {
	at   int64
	data []byte // nil: a truncation to at
}

// New returns an empty file system whose accidents follow from a seed.
func New(seed uint64) *FS {
	return &FS{rng: rand.New(rand.NewPCG(seed, 0xfa017)), names: map[string]*inode{}, durable: map[string]*inode{}}
}

// begin counts a call and asks Fault; the lock is held.
func (f *FS) begin(kind, name string) error {
	if f.crashed {
		return ErrCrashed
	}
	if f.Fault == nil {
		return nil
	}
	f.ops++
	err := f.Fault(Op{kind, name, f.ops - 1})
	if errors.Is(err, ErrCrashed) {
		f.crashed = true
	}
	return err
}

// Crashed reports whether the machine is down.
func (f *FS) Crashed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crashed
}

// Restart brings the machine up again, after a crash at the latest now: of what
// was not synced, a part is there.
func (f *FS) Restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.rng.IntN(len(f.moves) + 1) // a journaled file system keeps their order
	for _, m := range f.moves[:kept] {
		m.do(f.durable)
	}
	f.moves = nil
	done := map[*inode]bool{}
	for _, n := range f.durable {
		if !done[n] {
			done[n] = true
			f.settle(n)
			n.locked = false
		}
	}
	f.names = maps.Clone(f.durable)
	f.crashed, f.ops = false, 0
	f.life++
}

// settle leaves of a file's unsynced writes what a crash may leave.
func (f *FS) settle(n *inode) {
	data := append([]byte(nil), n.synced...)
	luck := f.rng.IntN(4)
	for _, w := range n.pending {
		switch {
		case luck == 0: // nothing of them
		case luck == 1: // all of them
			data = w.apply(data)
		case w.data == nil:
			if f.rng.IntN(2) == 0 {
				data = w.apply(data)
			}
		default: // sector by sector, as the disk came to it
			if f.rng.IntN(2) == 0 {
				data = grow(data, w.at+int64(len(w.data))) // the length came first: zeros
			}
			for from := 0; from < len(w.data); {
				to := min(len(w.data), from+sector-int((w.at+int64(from))%sector))
				if f.rng.IntN(2) == 0 {
					data = write{w.at + int64(from), w.data[from:to]}.apply(data)
				}
				from = to
			}
		}
	}
	n.data, n.synced, n.pending = data, append([]byte(nil), data...), nil
}

func grow(b []byte, size int64) []byte {
	if n := int(size) - len(b); n > 0 {
		b = append(b, make([]byte, n)...)
	}
	return b
}

func (w write) apply(b []byte) []byte {
	if w.data == nil {
		return grow(b, w.at)[:w.at]
	}
	b = grow(b, w.at+int64(len(w.data)))
	copy(b[w.at:], w.data)
	return b
}

// Read is a file's content; nil: there is none of that name.
func (f *FS) Read(name string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.names[name]; n != nil {
		return append([]byte{}, n.data...)
	}
	return nil
}

// Names are the files there are.
func (f *FS) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for name := range f.names {
		all = append(all, name)
	}
	return all
}

// Flip changes one bit of a file on disk, as an ageing disk does.
func (f *FS) Flip(name string, at int64, bit uint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.names[name]
	n.data[at] ^= 1 << (bit % 8)
	n.synced = append([]byte(nil), n.data...)
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// OpenFile is os.OpenFile.
func (f *FS) OpenFile(name string, flag int, _ fs.FileMode) (filesys.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("open", name); err != nil {
		return nil, pathError("open", name, err)
	}
	n := f.names[name]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, pathError("open", name, fs.ErrNotExist)
	case n != nil && flag&os.O_EXCL != 0:
		return nil, pathError("open", name, fs.ErrExist)
	case n == nil:
		n = &inode{}
		f.move(name, func(names map[string]*inode) { names[name] = n })
	case flag&os.O_TRUNC != 0:
		n.put(write{0, nil})
	}
	return &file{fs: f, inode: n, name: name, life: f.life}, nil
}

// move changes names now, and durably at the next SyncDir.
func (f *FS) move(name string, do func(map[string]*inode)) {
	do(f.names)
	f.moves = append(f.moves, move{filepath.Dir(name), do})
}

// Rename implements filesys.FS.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("rename", from); err != nil {
		return pathError("rename", from, err)
	}
	if f.names[from] == nil {
		return pathError("rename", from, fs.ErrNotExist)
	}
	f.move(to, func(names map[string]*inode) {
		if n := names[from]; n != nil {
			names[to] = n
			delete(names, from)
		}
	})
	return nil
}

// Link implements filesys.FS.
func (f *FS) Link(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("link", from); err != nil {
		return pathError("link", from, err)
	}
	switch {
	case f.names[from] == nil:
		return pathError("link", from, fs.ErrNotExist)
	case f.names[to] != nil:
		return pathError("link", to, fs.ErrExist)
	}
	f.move(to, func(names map[string]*inode) {
		if n := names[from]; n != nil {
			names[to] = n
		}
	})
	return nil
}

// Remove implements filesys.FS.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("remove", name); err != nil {
		return pathError("remove", name, err)
	}
	if f.names[name] == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	f.move(name, func(names map[string]*inode) { delete(names, name) })
	return nil
}

// SyncDir implements filesys.FS.
func (f *FS) SyncDir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("syncdir", dir); err != nil {
		return pathError("sync", dir, err)
	}
	var later []move
	for _, m := range f.moves {
		if m.dir == dir {
			m.do(f.durable)
		} else {
			later = append(later, m)
		}
	}
	f.moves = later
	return nil
}

// file is an open file.
type file struct {
	fs     *FS
	inode  *inode
	name   string
	life   int
	pos    int64
	locks  bool
	closed bool
}

func (n *inode) put(w write) {
	n.data = w.apply(n.data)
	n.pending = append(n.pending, w)
}

// begin is FS.begin for an open file; the lock is held.
func (f *file) begin(kind string) error {
	if f.life != f.fs.life {
		return ErrCrashed
	}
	if f.closed {
		return fs.ErrClosed
	}
	return f.fs.begin(kind, f.name)
}

func (f *file) Read(b []byte) (int, error) {
	n, err := f.ReadAt(b, f.pos)
	f.pos += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

func (f *file) ReadAt(b []byte, at int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.begin("read"); err != nil {
		return 0, pathError("read", f.name, err)
	}
	if at >= int64(len(f.inode.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.inode.data[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) Write(b []byte) (int, error) {
	n, err := f.WriteAt(b, f.pos)
	f.pos += int64(n)
	return n, err
}

func (f *file) WriteAt(b []byte, at int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.begin("write")
	n := len(b)
	if err != nil {
		if f.life != f.fs.life || f.closed {
			return 0, pathError("write", f.name, err)
		}
		n = f.fs.rng.IntN(n + 1)
	}
	if n > 0 {
		f.inode.put(write{at, append([]byte(nil), b[:n]...)})
	}
	if err != nil {
		return n, pathError("write", f.name, err)
	}
	return n, nil
}

func (f *file) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.begin("truncate"); err != nil {
		return pathError("truncate", f.name, err)
	}
	f.inode.put(write{size, nil})
	return nil
}

func (f *file) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.begin("sync"); err != nil {
		if f.life == f.fs.life && !f.closed && !f.fs.crashed { // the pages may be marked clean all the same
			f.fs.settle(f.inode)
		}
		return pathError("sync", f.name, err)
	}
	f.inode.synced, f.inode.pending = append([]byte(nil), f.inode.data...), nil
	return nil
}

func (f *file) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.life != f.fs.life || f.fs.crashed {
		return 0, pathError("stat", f.name, ErrCrashed)
	}
	return int64(len(f.inode.data)), nil
}

func (f *file) Lock() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	switch {
	case f.life != f.fs.life:
		return ErrCrashed
	case f.inode.locked && !f.locks || f.fs.names[f.name] != f.inode:
		return fmt.Errorf("%w: %s", filesys.ErrLocked, f.name)
	}
	f.inode.locked, f.locks = true, true
	return nil
}

func (f *file) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	if f.life == f.fs.life && f.locks {
		f.inode.locked = false
	}
	if f.fs.crashed {
		return ErrCrashed
	}
	return nil
}
