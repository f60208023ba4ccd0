package damaged

import (
	"bytes"
	"errors"
	"testing"
)

func TestFilesAreDamagedInTurnAndTheSameEachTime(t *testing.T) {
	seeds := map[string][]byte{"a": []byte(`{"n": 12}`), "b": bytes.Repeat([]byte{7}, 9000)}
	var seen [2][]string
	for run := range seen {
		failed := Files(t, 100, seeds, func(name string, file []byte) error {
			seen[run] = append(seen[run], name+string(file))
			if bytes.Equal(file, seeds[name]) {
				return nil
			}
			return errors.New("damaged")
		})
		if failed < 60 || failed == 100 {
			t.Errorf("%d of 100 files differ", failed)
		}
	}
	for i, s := range seen[0] {
		if s != seen[1][i] || (s[0] == 'a') != (i%2 == 0) {
			t.Errorf("file %d is %q, then %q", i, s, seen[1][i])
		}
	}
	if string(seeds["a"]) != `{"n": 12}` {
		t.Errorf("the good file is %q", seeds["a"])
	}
}
