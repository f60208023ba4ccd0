package datasets

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"agentcli/datasets/registry"
	"agentcli/internal/filesys"
	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/traj"
)

// Import copies a file's rows, in our terms, into the cache folder, so that
// Open finds them by name, and o.Keep as the dataset's entry beside them. It returns the
// number of rows and where they are.
func Import(ctx context.Context, name, path string, o Options) (int, string, error) {
	if !registry.IsName(name) || unsafeName.MatchString(o.Split) {
		return 0, "", misfit("%q cannot be the name of a dataset or of its split: want a to z, digits, dots, - and _",
			strings.Trim(name+" "+o.Split, " "))
	}
	if o.Cache == "" {
		o.Cache = CacheDir()
	}
	e, err := findEntry(name, o)
	if err != nil {
		return 0, "", err
	}
	var own registry.Fields
	if e != nil {
		if e.Generator != "" {
			return 0, "", misfit("%s is a generated dataset; import the file under another name", name)
		}
		own = e.Fields
	}
	if o.Split == "" {
		o.Split = defaultSplit
	}
	m, err := newMapping(o.Fields, own, true)
	if err != nil {
		return 0, "", err
	}
	m.envs, m.objects, m.images = o.Envs, o.takesObjects(e), newImageReader(o.Images, filepath.Dir(path))
	kept, err := keptEntry(name, path, e, o.Keep)
	if err != nil {
		return 0, "", err
	}
	dir := filepath.Join(o.Cache, name)
	dst := filepath.Join(dir, o.Split+".jsonl")
	_, missing := os.Stat(dst)
	if missing == nil && !o.Replace {
		return 0, "", misfit("%s is there already: %s; %s replaces it, and %s NAME keeps both",
			name, dst, setting.Name("Replace"), setting.Name("Split"))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, "", fmt.Errorf("cannot make the folder of imported datasets: %w; name another place by XDG_CACHE_HOME", err)
	}
	f, err := os.CreateTemp(dir, ".import.*.tmp")
	if err != nil {
		return 0, "", fmt.Errorf("cannot write into the folder of imported datasets: %w; name another place by XDG_CACHE_HOME", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	n := 0
	for p, err := range (problemReader{path: path, mapping: m}).all(ctx) {
		if err != nil {
			return 0, "", err
		}
		row, err := storedRow(p)
		if err != nil {
			return 0, "", atRow(path, p.row, err)
		}
		if kept != nil {
			if err := row.fits(kept, newImageReader(o.Images, "")); err != nil {
				return 0, "", atRow(path, p.row, err)
			}
		}
		if err := enc.Encode(row); err != nil {
			return 0, "", err
		}
		n++
	}
	if n == 0 {
		return 0, "", malformed.At(path, "", malformed.Missing, "has no rows")
	}
	if missing == nil && o.OnReplace != nil {
		o.OnReplace(dst)
	}
	err = errors.Join(w.Flush(), f.Chmod(0o644), f.Sync(), os.Rename(f.Name(), dst))
	if err != nil {
		return 0, "", fmt.Errorf("cannot write %s: %w", dst, err)
	}
	if kept != nil {
		if err := writeEntry(entryFile(o.Cache, name), kept); err != nil {
			return 0, "", err
		}
	}
	return n, dst, nil
}

// keptEntry is the entry that Import writes: what is known of the dataset, with the keys of
// keep over it; nil where there is nothing to keep.
func keptEntry(name, path string, e *entry, keep *registry.Entry) (*entry, error) {
	if keep == nil {
		return nil, nil
	}
	kept := &entry{Entry: registry.Entry{About: "rows of " + filepath.Base(path)}}
	if e != nil {
		kept.Entry = e.Entry
	}
	kept.Name, kept.Path = name, ""
	kept.Reward = cmp.Or(keep.Reward, kept.Reward)
	kept.Env = cmp.Or(keep.Env, kept.Env)
	kept.System = cmp.Or(keep.System, kept.System)
	kept.Prompt = cmp.Or(keep.Prompt, kept.Prompt)
	if keep.Tools != nil {
		kept.Tools = keep.Tools
	}
	if keep.Options != nil {
		kept.Options = keep.Options
	}
	if kept.Prompt != "" && !strings.Contains(kept.Prompt, "{question}") {
		return nil, misfitOf("Prompt", nil, "dataset %s: the prompt must hold {question}", name)
	}
	return kept, kept.Validate()
}

// fits reports what the entry's prompt wants and the row, as it is stored, lacks.
func (s stored) fits(e *entry, images imageReader) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	columns, err := object(b)
	if err != nil {
		return err
	}
	p, err := mapping{images: images}.read(columns)
	if err != nil {
		return err
	}
	d := &Dataset{}
	d.suggest(e, Options{})
	_, err = d.task(p, Options{})
	return err
}

func writeEntry(path string, e *entry) error {
	b, err := e.Marshal()
	if err != nil {
		return err
	}
	if err := filesys.WriteFile(filesys.OS, path, b, 0o644); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// stored is a row as Import writes it.
type stored struct {
	problem
	Prompt   string          `json:"prompt,omitempty"`
	Messages []storedMessage `json:"messages,omitempty"` // in place of the problem's
	Images   []string        `json:"images,omitempty"`   // data URIs, in order
}

// storedMessage is a message whose content is a list of parts where it has images.
type storedMessage struct {
	traj.Message
	Content any `json:"content"`
}

// storedRow is a problem as it is stored.
func storedRow(p problem) (stored, error) {
	row := stored{problem: p}
	if p.verbatim {
		row.Prompt, row.Question = p.Question, ""
	}
	messages, images := p.Messages, p.images
	if p.looks && len(messages) > 0 {
		var err error
		if messages, err = placeImages(messages, images); err != nil {
			return row, err
		}
		images = nil
	}
	for _, m := range messages {
		images = append(images, m.Images...)
		s := storedMessage{Message: m, Content: m.Content}
		if s.Message.Images = nil; len(m.Images) > 0 {
			parts, err := m.Parts()
			if err != nil {
				return row, err
			}
			s.Content = storedParts(parts)
		}
		row.Messages = append(row.Messages, s)
	}
	for _, im := range images {
		row.Images = append(row.Images, "data:"+http.DetectContentType(im.Bytes)+";base64,"+base64.StdEncoding.EncodeToString(im.Bytes))
	}
	return row, nil
}

// storedParts are parts of text and places for images, in Hugging Face's form.
func storedParts(parts []traj.ContentPart) (list []map[string]string) {
	for _, p := range parts {
		if p.Image != nil {
			list = append(list, map[string]string{"type": "image"})
		} else {
			list = append(list, map[string]string{"type": "text", "text": p.Text})
		}
	}
	return list
}
