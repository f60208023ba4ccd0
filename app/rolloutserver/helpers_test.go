package rolloutserver

import (
	"context"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/models/modelstest"
	"agentcli/app/rollout"
	"agentcli/internal/filesys"
	"agentcli/journal"
)

// The environment of a process that is a server of a test: its model's server, and its run.
const (
	envModel = "ROLLOUTSERVER_TEST_MODEL"
	envDir   = "ROLLOUTSERVER_TEST_DIR"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(envModel); url != "" {
		o := options(os.Getenv(envDir), url)
		if _, err := os.Stat(o.Output); err == nil {
			o.Resume, o.Output = o.Output, ""
		}
		s := console.Streams{In: strings.NewReader(""), Out: io.Discard, Err: os.Stderr}.Shared()
		if Run(context.Background(), o, s) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// options are those of a server of a test; url: its model's server, "": the small local model.
func options(dir, url string) Options {
	o := Options{Serve: "127.0.0.1:0"}
	o.Options = rollout.DefaultOptions(modelstest.Backend{}, tiny, "")
	if url != "" {
		o.Model.Model, o.Model.BaseURL = "mock", models.ParseAddresses(url)
	}
	o.Tools, o.Output, o.Sampling.MaxTokens = []string{}, dir, 8
	return o
}

func newRecorder() *httptest.ResponseRecorder { return httptest.NewRecorder() }

func emptyIndex(t *testing.T) *journal.Index {
	t.Helper()
	j, err := journal.Create(filesys.OS, filepath.Join(t.TempDir(), "journal"), journal.Header{}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j.Index()
}
