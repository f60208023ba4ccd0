package datasets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"agentcli/internal/malformed"
	"agentcli/internal/safego"
	"agentcli/traj"
)

// open opens the bytes of a file. The end of the context ends a wait for the other end of a
// pipe.
func open(ctx context.Context, path string) (io.ReadCloser, error) {
	st, err := os.Stat(path)
	var f *os.File
	switch {
	case err != nil:
	case st.IsDir():
		return nil, fmt.Errorf("%s: is a folder, want a file", path)
	case st.Mode().IsRegular():
		f, err = os.Open(path)
	default:
		return openPipe(ctx, path)
	}
	if err == nil {
		return f, nil
	}
	return nil, notOpened(path, err)
}

// notOpened is what is wrong with a file that cannot be opened.
func notOpened(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return traj.Mark(fmt.Errorf("%s: no such file; look at the path", path), fs.ErrNotExist)
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// openPipe opens a named pipe or a device. Opening a pipe waits for its writer, which no
// signal ends, so that it waits in a goroutine: it is left behind when the context ends.
func openPipe(ctx context.Context, path string) (io.ReadCloser, error) {
	type opened struct {
		file *os.File
		err  error
	}
	done := make(chan opened, 1)
	go func() {
		var o opened
		defer func() { done <- o }()
		defer safego.Into(&o.err)
		o.file, o.err = os.Open(path)
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, notOpened(path, o.err)
		}
		stop := context.AfterFunc(ctx, func() { _ = o.file.SetReadDeadline(time.Unix(1, 0)) })
		return &pipe{o.file, ctx, stop}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// pipe is a file whose reads the end of a context ends.
type pipe struct {
	file *os.File
	ctx  context.Context //nolint:containedctx // of whoever reads
	stop func() bool
}

// Read implements io.Reader.
func (p *pipe) Read(b []byte) (int, error) {
	n, err := p.file.Read(b)
	if err != nil && p.ctx.Err() != nil {
		err = context.Cause(p.ctx)
	}
	return n, err
}

// Close implements io.Closer.
func (p *pipe) Close() error {
	p.stop()
	return p.file.Close()
}

// rereadable refuses what can be read only once, as a pipe: a dataset is read when it is
// opened, and again for its tasks.
func rereadable(path string) error {
	if st, err := os.Stat(path); err != nil || st.IsDir() || st.Mode().IsRegular() {
		return nil //nolint:nilerr // whoever opens the file says what is wrong
	}
	return malformed.At(path, "", malformed.Unsupported,
		"is a pipe or a device, and a dataset is read more than once; write the rows into a file")
}
