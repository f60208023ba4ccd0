package dotenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestABrokenDotEnvIsNamedByItsLineOnly: its text is keys.
func TestABrokenDotEnvIsNamedByItsLineOnly(t *testing.T) {
	for text, line := range map[string]string{
		"BAD LINE here\nOPENAI_API_KEY=sk-canary\nHF_TOKEN=hf_canary\n": "line 1 ",
		"OPENAI_API_KEY=sk-canary\n\nsk-canary\nHF_TOKEN=hf_canary\n":   "line 3 ",
		"A=1\nOPENAI_API_KEY=\"sk-canary\nHF_TOKEN=hf_canary\n":         "line 2 ",
	} {
		path := filepath.Join(t.TempDir(), ".env")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := Load(path)
		if err == nil || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), line) {
			t.Errorf("%q: %v", text, err)
		}
		if _, set := os.LookupEnv("OPENAI_API_KEY"); set && os.Getenv("OPENAI_API_KEY") == "sk-canary" {
			t.Error("a broken file was read")
		}
	}
	path := filepath.Join(t.TempDir(), ".env")
	if err := os.WriteFile(path, []byte("DOTENV_TEST_A=file\nDOTENV_TEST_B=\"of file\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOTENV_TEST_A", "environment")
	t.Cleanup(func() { _ = os.Unsetenv("DOTENV_TEST_B") })
	if err := Load(path); err != nil || os.Getenv("DOTENV_TEST_A") != "environment" || os.Getenv("DOTENV_TEST_B") != "of file" {
		t.Error(err, os.Getenv("DOTENV_TEST_A"), os.Getenv("DOTENV_TEST_B"))
	}
	if err := Load(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Error(err)
	}
}

// FuzzDotEnv: whatever a file has, its error has none of its words.
// The time to find the wrong line grows with the file's length, not with its square: this took minutes.
func TestTheWrongLineOfALongFileIsFound(t *testing.T) {
	long := strings.Repeat("A=1\n\n# a comment\n", 20_000)
	for text, want := range map[string]int{
		long + "BAD LINE\n" + long: 60_001,
		"BAD LINE\n" + long:        1,
		long + "B=\"x\n" + long:    60_001,
		"K=\"a\nb\nc\"\nBAD LINE":  4,
	} {
		if n := wrongLine([]byte(text)); n != want {
			t.Errorf("line %d, want %d", n, want)
		}
	}
}

func FuzzDotEnv(f *testing.F) {
	for _, s := range []string{"A=1\n", "BAD LINE\nK=canaryQ\n", "export A='x\n", "A=\"${B}\n", "=\n", "\xef\xbb\xbfA=1", "A\n=B", "#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsRune(s, 0) {
			return
		}
		path := filepath.Join(t.TempDir(), ".env")
		if err := os.WriteFile(path, []byte(s+"\ncanaryQX canaryQX\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if n := wrongLine([]byte(s)); n < 1 || n > strings.Count(s, "\n")+1 {
			t.Errorf("line %d", n)
		}
		before := os.Environ()
		err := Load(path)
		os.Clearenv()
		for _, kv := range before {
			name, value, _ := strings.Cut(kv, "=")
			_ = os.Setenv(name, value)
		}
		if err != nil && strings.Contains(err.Error(), "canaryQ") {
			t.Error(err)
		}
	})
}
