package hub

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pythonReads is a program for the Python library: it prints where the file of a repository
// is, offline, at a branch and at a commit, and the folder of the snapshot.
const pythonReads = `
import sys
from huggingface_hub import hf_hub_download, snapshot_download
repo, file, commit = sys.argv[1:]
for revision in ("main", commit):
    print(hf_hub_download(repo, file, repo_type="dataset", revision=revision))
    print(snapshot_download(repo, repo_type="dataset", revision=revision, local_files_only=True))
`

// pythonWrites lays a repository out with the functions that the Python library fetches with.
const pythonWrites = `
import os, sys
from huggingface_hub import file_download, constants
repo, file, commit, etag, text = sys.argv[1:]
storage = os.path.join(constants.HF_HUB_CACHE, file_download.repo_folder_name(repo_id=repo, repo_type="dataset"))
blob = os.path.join(storage, "blobs", etag)
pointer = file_download._get_pointer_path(storage, commit, file)
os.makedirs(os.path.dirname(blob), exist_ok=True)
os.makedirs(os.path.dirname(pointer), exist_ok=True)
file_download._cache_commit_hash_for_specific_revision(storage, "main", commit)
with open(blob, "w") as f:
    f.write(text)
file_download._create_symlink(blob, pointer, new_blob=True)
print(pointer)
`

// TestTheCacheIsSharedWithPython reads in Python what we fetched, and the other way round.
func TestTheCacheIsSharedWithPython(t *testing.T) {
	python := os.Getenv("AGENTCLI_PYTHON")
	if python == "" || exec.Command(python, "-c", "import huggingface_hub").Run() != nil {
		t.Skip("set AGENTCLI_PYTHON to a Python with the package huggingface_hub")
	}
	run := func(cache, program string, args ...string) []string {
		t.Helper()
		cmd := exec.Command(python, append([]string{"-c", program}, args...)...)
		cmd.Env = append(os.Environ(), "HF_HUB_CACHE="+cache, "HF_HUB_OFFLINE=1")
		out, err := cmd.Output()
		if err != nil {
			var failed *exec.ExitError
			if errors.As(err, &failed) {
				t.Logf("%s", failed.Stderr)
			}
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	f, h := start(t)
	for _, file := range []string{shard, "README.md"} {
		ours := fetchOK(t, f, h, file)
		snapshot := strings.TrimSuffix(ours, "/"+file)
		if got, want := strings.Join(run(h.CacheDir, pythonReads, "org/set", file, commit), " "),
			strings.Join([]string{ours, snapshot, ours, snapshot}, " "); got != want {
			t.Errorf("Python finds %s, want %s", got, want)
		}
	}
	cache := t.TempDir()
	theirs := run(cache, pythonWrites, "org/set", "README.md", commit, etag("README.md", "hello"), "hello")[0]
	off := &Hub{CacheDir: cache, Offline: true}
	for _, revision := range []string{"", "main", commit} {
		p, err := off.Download(ctx, Repo{Type: Dataset, ID: "org/set", Revision: revision}, "README.md")
		if err != nil || !sameFile(p, theirs) {
			t.Errorf("revision %q: %s, %v; want %s", revision, p, err, theirs)
		}
		if _, err := CheckCached(ctx, p); err != nil {
			t.Error(err)
		}
	}
	// A hub that has the same file sends nothing but its headers.
	h.CacheDir = cache
	if p, err := h.Download(ctx, repo, "README.md"); err != nil || !sameFile(p, theirs) {
		t.Errorf("%s, %v", p, err)
	}
	for _, r := range f.requests[len(f.requests)-1:] {
		if !strings.HasPrefix(r, "HEAD") {
			t.Errorf("it was fetched again: %v", r)
		}
	}
}

func sameFile(a, b string) bool {
	x, err1 := filepath.EvalSymlinks(a)
	y, err2 := filepath.EvalSymlinks(b)
	return err1 == nil && err2 == nil && x == y
}
