package llm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// errEnough ends the reading of a stream whose rest is not wanted.
var errEnough = errors.New("enough")

// events calls do with the data of each server-sent event until [DONE] or the
// end, which no error tells apart: whether the reply was whole is for its
// contents to say. The data is valid until do returns.
func events(r io.Reader, do func(data []byte) error) error {
	br := bufio.NewReaderSize(r, 16<<10)
	var line, data []byte
	pending := false
	dispatch := func() (bool, error) {
		if !pending {
			return false, nil
		}
		pending = false
		if string(bytes.TrimSpace(data)) == "[DONE]" {
			return true, nil
		}
		err := do(data)
		data = data[:0]
		return false, err
	}
	for {
		part, err := br.ReadSlice('\n')
		if len(data)+len(line)+len(part) > maxBody {
			return fmt.Errorf("an event of the stream is longer than %d bytes", maxBody)
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		text := bytes.TrimRight(line, "\r\n")
		line = line[:0]
		if rest, ok := bytes.CutPrefix(text, []byte("data:")); ok {
			if pending {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(rest, []byte(" "))...)
			pending = true
		}
		// A comment (a server's ping) and fields other than data say nothing to us.
		if len(text) == 0 || err != nil {
			if done, derr := dispatch(); done || derr != nil {
				return derr
			}
		}
		if err != nil {
			return nil //nolint:nilerr // the end of the stream
		}
	}
}
