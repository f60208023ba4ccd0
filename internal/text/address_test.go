package text

import "testing"

func TestAddressKeepsNoSecrets(t *testing.T) {
	for in, want := range map[string]string{
		"http://h:8000/v1":                             "http://h:8000/v1",
		"https://me:secret@h/v1":                       "https://h/v1",
		"https://token@h/v1":                           "https://h/v1",
		"https://h/mcp?key=hidden":                     "https://h/mcp",
		"https://me:p@h/mcp?key=hidden#model":          "https://h/mcp#model",
		"https://me:p@ss@h/v1":                         "https://h/v1",
		"http://a:b@one/v1,https://c:d@two/v1?k=1":     "http://one/v1,https://two/v1",
		"exec:curl 'https://me:p@h/x?key=hidden' -s":   "exec:curl 'https://h/x' -s",
		"the model a@b asked https://h/a@b, as always": "the model a@b asked https://h/a@b, as always",
		"https://[::1]:80/v1":                          "https://[::1]:80/v1",
		"no address at all?":                           "no address at all?",
		"HTTP://me:p@h/v1":                             "HTTP://h/v1",
	} {
		if got := Address(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
