package models

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"agentcli/model/weights"
)

// Fingerprint tells a model's weights from others': a hash of each weight
// file's name and size and of its first and last megabyte.
func Fingerprint(path string) (string, error) {
	files := []string{path}
	if st, err := os.Stat(path); err != nil {
		return "", err
	} else if st.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.safetensors")); err != nil {
			return "", err
		}
		if weights.IsAdapter(path) {
			m, err := weights.Open(path)
			if err != nil {
				return "", err
			}
			files = m.Files() // of its base too
			if err := m.Close(); err != nil {
				return "", err
			}
		}
	}
	h := sha256.New()
	for _, name := range files {
		if err := hashEnds(h, name); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

func hashEnds(h io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%s %d\n", filepath.Base(name), st.Size())
	const end = 1 << 20
	if _, err := io.CopyN(h, f, min(end, st.Size())); err != nil {
		return err
	}
	if _, err := f.Seek(-min(end, st.Size()), io.SeekEnd); err != nil {
		return err
	}
	_, err = io.CopyN(h, f, min(end, st.Size()))
	return err
}
