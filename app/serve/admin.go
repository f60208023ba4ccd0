package serve

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"agentcli/internal/setting"
	"agentcli/policy"
)

// administration answers who may change what is served.
type administration struct{ *server }

// maxWeights is how long a body of weights may be, in bytes.
const maxWeights = 64 << 30

var exchanges = []policy.Exchange{policy.ExchangeWait, policy.ExchangeAbort, policy.ExchangeKeep}

// exchange is what a request says becomes of the replies under way.
func exchange(r *http.Request) (policy.Exchange, error) {
	how := policy.Exchange(r.URL.Query().Get("mode"))
	if how == "" {
		return policy.ExchangeWait, nil
	}
	if !slices.Contains(exchanges, how) {
		return "", bad("mode", "mode is %q; it is wait, abort or keep", string(how))
	}
	return how, nil
}

// number is the version that new weights get: ?version= of the request, or weight_version of
// its body, where SGLang has it; else next.
func (s *administration) number(r *http.Request, body json.RawMessage, next int64) (int64, error) {
	field, given := "version", r.URL.Query().Get("version")
	if given == "" && !isNull(body) {
		field, given = "weight_version", strings.Trim(string(body), `"`)
	}
	if given == "" {
		return next, nil
	}
	n, err := strconv.ParseInt(given, 10, 64)
	if err != nil || n < 0 {
		return 0, bad(field, "%s is %q; it is a whole number from 0", field, given)
	}
	return n, nil
}

func (s *administration) pause(w http.ResponseWriter, r *http.Request) error {
	how, err := exchange(r)
	if err == nil {
		err = s.engine.Pause(how)
	}
	if err != nil {
		return err
	}
	s.setPaused(true)
	return answer(w, map[string]string{"status": "paused"})
}

func (s *administration) resume(w http.ResponseWriter, _ *http.Request) error {
	s.engine.Resume()
	s.setPaused(false)
	return answer(w, map[string]string{"status": "resumed"})
}

func (s *administration) setPaused(yes bool) {
	s.mu.Lock()
	s.paused = yes
	s.mu.Unlock()
}

func (s *administration) isPaused(w http.ResponseWriter, _ *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return answer(w, map[string]bool{"is_paused": s.paused})
}

func (s *administration) resetCache(w http.ResponseWriter, _ *http.Request) error {
	s.engine.ForgetPrefixes()
	return answer(w, map[string]bool{"success": true})
}

// updateWeights answers POST /update_weights: {"path": FOLDER}, or tensors of the model as a
// safetensors file in the body.
func (s *administration) updateWeights(w http.ResponseWriter, r *http.Request) error {
	how, err := exchange(r)
	if err != nil {
		return err
	}
	if ofWeights(r) {
		return s.takeTensors(w, r, how)
	}
	var c struct {
		Path    string          `json:"path"`
		Version json.RawMessage `json:"weight_version"`
	}
	if err := read(w, r, &c); err != nil {
		return err
	}
	version, err := s.number(r, c.Version, s.engine.Version()+1)
	if err != nil {
		return err
	}
	return s.takeFolder(w, "path", c.Path, version, how)
}

// updateFromDisk answers POST /update_weights_from_disk {"model_path": FOLDER}, as SGLang does.
func (s *administration) updateFromDisk(w http.ResponseWriter, r *http.Request) error {
	how, err := exchange(r)
	if err != nil {
		return err
	}
	var c struct {
		Path    string          `json:"model_path"`
		Abort   bool            `json:"abort_all_requests"`
		Version json.RawMessage `json:"weight_version"`
	}
	if err := read(w, r, &c); err != nil {
		return err
	}
	if c.Abort {
		how = policy.ExchangeAbort
	}
	version, err := s.number(r, c.Version, s.engine.Version()+1)
	if err != nil {
		return err
	}
	return s.takeFolder(w, "model_path", c.Path, version, how)
}

// ofWeights reports whether the body of a request is a file of tensors.
func ofWeights(r *http.Request) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind == "application/octet-stream"
}

func (s *administration) takeFolder(w http.ResponseWriter, field, path string, version int64, how policy.Exchange) error {
	if err := s.allowed(field, path); err != nil {
		return err
	}
	if err := s.engine.LoadWeights(path, version, how); err != nil {
		return bad(field, "%v", err)
	}
	return s.updated(w, version, path)
}

// takeTensors takes the weights of the body. Its file is gone at once: it is mapped as long as
// the engine has it.
func (s *administration) takeTensors(w http.ResponseWriter, r *http.Request, how policy.Exchange) error {
	version, err := s.number(r, nil, s.engine.Version()+1)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp("", "agentcli-weights-*.safetensors")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, r.Body)
	var long *http.MaxBytesError
	switch err = errors.Join(err, f.Close()); {
	case errors.As(err, &long):
		return refuse(http.StatusRequestEntityTooLarge, "", "the weights are longer than %d GiB", maxWeights>>30)
	case err != nil:
		return bad("", "the weights ended early: %v", err)
	}
	if err := s.engine.UpdateWeights(f.Name(), version, how); err != nil {
		return bad("", "the weights: %s", strings.ReplaceAll(err.Error(), f.Name(), "the body"))
	}
	return s.updated(w, version, "tensors of a request")
}

func (s *administration) updated(w http.ResponseWriter, version int64, from string) error {
	s.s.Log().Info("new weights", "version", version, "from", from)
	return answer(w, map[string]any{"success": true, "message": "the weights are exchanged", "weight_version": version,
		"policy_version": version})
}

// allowed holds a path of a request to the folders that the user named.
func (s *administration) allowed(field, path string) error {
	if path == "" {
		return bad(field, "%s is missing; it names a folder", field)
	}
	real, err := filepath.EvalSymlinks(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing { // whether its place is allowed decides what may be said
		real, err = filepath.EvalSymlinks(filepath.Dir(path))
	}
	if err == nil {
		real, err = filepath.Abs(real)
	}
	for _, dir := range s.o.AllowPath {
		base, baseErr := filepath.EvalSymlinks(dir)
		if baseErr == nil {
			base, baseErr = filepath.Abs(base)
		}
		if err != nil || baseErr != nil {
			continue
		}
		if rel, relErr := filepath.Rel(base, real); relErr == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			if missing {
				return bad(field, "%s %s: there is no such folder on this machine", field, path)
			}
			return nil
		}
	}
	return refuse(http.StatusForbidden, field, "%s %s is not below a folder of %s", field, path, setting.Name("AllowPath"))
}

func (s *administration) serverInfo(w http.ResponseWriter, _ *http.Request) error {
	l := s.engine.Load()
	return answer(w, map[string]any{"model_path": s.source.Name, "served_model_name": s.name, "dtype": s.source.DType,
		"max_model_len": s.facts.MaxContext, "policy_version": s.engine.Version(), "running": l.Running, "waiting": l.Waiting,
		"kv_blocks": l.Blocks, "kv_blocks_used": l.UsedBlocks, "kv_block_tokens": l.BlockTokens, "requests": s.requests.Load()})
}
