package rolloutserver

import (
	"net/http/httptest"
	"path/filepath"
	"testing"

	"agentcli/internal/filesys"
	"agentcli/journal"
)

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
