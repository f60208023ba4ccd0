package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The files of a model folder that are read.
const (
	configFile = "config.json"
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

// small are the files beside the weights, by how their names begin; all are JSON
// but a chat template.
var small = []string{"generation_config", "tokenizer", "chat_template", "special_tokens_map", "added_tokens", "vocab",
	"preprocessor_config", "processor_config"}

// Model fetches a model in the Hugging Face layout and returns its folder: the
// configuration and the tokenizer, and the weights where they are asked for.
// What is in the cache whole is taken as it is, and the hub is not asked.
func (h *Hub) Model(ctx context.Context, id string, weights bool) (string, error) {
	r := Repo{Type: Model, ID: id}
	if err := r.Validate(); err != nil {
		return "", err
	}
	if dir := h.cachedModel(r, weights, "tokenizer.json", "tokenizer_config.json"); dir != "" {
		return dir, nil
	}
	err := fmt.Errorf("%s: %w by HF_HUB_OFFLINE", r, ErrOffline)
	var files []File
	if !h.Offline {
		files, err = h.list(ctx, r)
	}
	if err != nil {
		// Some models have another set of tokenizer files; without a hub that is no matter.
		if dir := h.cachedModel(r, weights); dir != "" && (h.Offline || netError(err)) && ctx.Err() == nil {
			return dir, nil
		}
		return "", err
	}
	has := func(name string) bool {
		return slices.ContainsFunc(files, func(f File) bool { return f.Path == name })
	}
	if !has(configFile) {
		return "", fmt.Errorf("%s: %w", r, &LayoutError{Missing: configFile, GGUF: ggufOf(files)})
	}
	if weights && !has(singleFile) && !has(indexFile) {
		return "", fmt.Errorf("%s: %w", r, &LayoutError{Missing: singleFile, GGUF: ggufOf(files)})
	}
	// The order is what makes an interrupted fetch show in the cache: the
	// configuration comes after all that is small, the weights come last.
	var names []string
	for _, f := range files {
		ext := filepath.Ext(f.Path)
		if (ext == ".json" || ext == ".jinja") && slices.ContainsFunc(small, func(s string) bool { return strings.HasPrefix(f.Path, s) }) &&
			!strings.Contains(f.Path, "/") {
			names = append(names, f.Path)
		}
	}
	if _, err := h.DownloadAll(ctx, r, names); err != nil {
		return "", err
	}
	p, err := h.Download(ctx, r, configFile)
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(p)
	switch {
	case weights && has(indexFile):
		if p, err = h.Download(ctx, r, indexFile); err != nil {
			return "", err
		}
		shards, err := shardNames(p)
		if err != nil {
			return "", err
		}
		if _, err := h.DownloadAll(ctx, r, shards); err != nil {
			return "", err
		}
	case weights:
		if _, err := h.Download(ctx, r, singleFile); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// LayoutError is a repository that is no model in the layout of Hugging Face.
type LayoutError struct {
	Missing string // the file that it lacks
	GGUF    string // a .gguf file that it has instead; "": none
}

func (e *LayoutError) Error() string {
	s := fmt.Sprintf("it has no %s, so it is not a model in the Hugging Face layout", e.Missing)
	if e.Missing == singleFile {
		s = "it has no weights as .safetensors"
	}
	if e.GGUF != "" {
		s += fmt.Sprintf("; fetch one of its .gguf files (%s) and name that file", e.GGUF)
	}
	return s
}

// Is compares the files.
func (e *LayoutError) Is(other error) bool {
	o, ok := other.(*LayoutError)
	return ok && *o == *e
}

// ggufOf is the first .gguf file, "" if there is none.
func ggufOf(files []File) string {
	for _, f := range files {
		if strings.HasSuffix(f.Path, ".gguf") {
			return f.Path
		}
	}
	return ""
}

// shardNames reads from an index which files hold the weights.
func shardNames(index string) ([]string, error) {
	b, err := os.ReadFile(index)
	if err != nil {
		return nil, err
	}
	var ix struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &ix); err != nil {
		return nil, fmt.Errorf("%s: %w", index, err)
	}
	var names []string
	for _, name := range ix.WeightMap {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: weight_map: no tensors", index)
	}
	slices.Sort(names)
	return names, nil
}

// cachedModel is the folder of a model that the cache holds whole, with the
// files that must be among them; "" if there is none.
func (h *Hub) cachedModel(r Repo, weights bool, must ...string) string {
	c := h.commit(r)
	if c == "" || !filepath.IsLocal(c) {
		return ""
	}
	dir := filepath.Join(h.CacheDir, r.folder(), "snapshots", c)
	must = append(must, configFile)
	if weights {
		shards, err := shardNames(filepath.Join(dir, indexFile))
		switch {
		case errors.Is(err, os.ErrNotExist):
			shards = []string{singleFile}
		case err != nil:
			return ""
		}
		must = append(must, shards...)
	}
	for _, name := range must {
		if !filepath.IsLocal(name) {
			return ""
		}
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return ""
		}
	}
	return dir
}
