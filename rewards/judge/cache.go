package judge

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// cache keeps the replies of a judge, a file each, so that a file that is scored again
// costs nothing. Several processes may share it.
type cache struct{ dir string }

// stored is a file of the cache.
type stored struct {
	Reply string `json:"reply"`
}

// key is the name of a reply: it depends on all that the model is given.
func key(model, prompt string, seed int64, temperature float64) string {
	b, _ := json.Marshal([]any{model, prompt, seed, temperature, maxTokens}) // text and numbers alone
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (c cache) path(key string) string { return filepath.Join(c.dir, key[:2], key+".json") }

// get gives the reply of a key. A file that cannot be read counts as missing.
func (c cache) get(key string) (reply string, ok bool) {
	if c.dir == "" {
		return "", false
	}
	b, err := os.ReadFile(c.path(key))
	var s stored
	if err != nil || json.Unmarshal(b, &s) != nil {
		return "", false
	}
	return s.Reply, true
}

// put keeps a reply. Whoever reads it meanwhile sees the whole file or none.
func (c cache) put(key, reply string) error {
	if c.dir == "" {
		return nil
	}
	if err := c.write(c.path(key), stored{reply}); err != nil {
		return fmt.Errorf("the cache of the judge's replies: %w", err)
	}
	return nil
}

func (c cache) write(path string, s stored) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
