package serve

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/llm"
	"agentcli/policy"
)

// loadAdapters loads those that the server is started with, each as NAME=FOLDER.
func loadAdapters(s *server) error {
	for _, given := range s.o.Adapters {
		name, folder, ok := strings.Cut(given, "=")
		if !ok || name == "" || folder == "" {
			return exit.Usagef("%s %q is not NAME=FOLDER", setting.Name("Adapters"), given)
		}
		if err := freshName(s, name); err != nil {
			return exit.Usagef("%s %s: %w", setting.Name("Adapters"), given, err)
		}
		if err := loadAdapter(s, name, folder, 0); err != nil {
			return err
		}
	}
	return nil
}

// loadAdapter loads one, and says where it was made for another model, as far as names tell.
func loadAdapter(s *server, name, folder string, version int64) error {
	if err := s.engine.LoadAdapter(name, folder, version); err != nil {
		return err
	}
	s.s.Log().Info("adapter", "name", name, "from", folder, "version", version)
	a := findAdapter(s, name)
	if last := func(path string) string { return filepath.Base(filepath.Clean(path)) }; a != nil && last(a.Base) != last(s.source.Name) {
		s.s.Say(fmt.Sprintf("the adapter %s names the base model %s, this is %s; its shapes fit", name, a.Base, s.source.Name))
	}
	return nil
}

// findAdapter is the adapter of a name; nil: there is none.
func findAdapter(s *server, name string) *policy.Adapter {
	all := s.engine.Adapters()
	if i := slices.IndexFunc(all, func(a policy.Adapter) bool { return a.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// fresh says why no adapter can get a name.
func freshName(s *server, name string) error {
	switch {
	case name == s.name || name == s.source.Name:
		return bad("lora_name", "%s is the name of the model itself", name)
	case findAdapter(s, name) != nil:
		return bad("lora_name", "the adapter %s has been loaded already; load_inplace: true exchanges it", name)
	}
	return nil
}

// load answers vLLM's POST /v1/load_lora_adapter, and SGLang's without /v1.
func (s *administration) load(w http.ResponseWriter, r *http.Request) error {
	var c struct {
		Name    string          `json:"lora_name"`
		Path    string          `json:"lora_path"`
		InPlace bool            `json:"load_inplace"`
		Version json.RawMessage `json:"weight_version"`
	}
	if err := read(w, r, &c); err != nil {
		return err
	}
	if c.Name == "" {
		return bad("lora_name", "lora_name is missing; requests name the adapter by it")
	}
	if err := s.allowed("lora_path", c.Path); err != nil {
		return err
	}
	next := int64(0)
	if old := findAdapter(s.server, c.Name); old != nil && c.InPlace {
		next = old.Version + 1
	} else if err := freshName(s.server, c.Name); err != nil {
		return err
	}
	version, err := s.number(r, c.Version, next)
	if err != nil {
		return err
	}
	if err := loadAdapter(s.server, c.Name, c.Path, version); err != nil {
		return bad("lora_path", "%v", err)
	}
	return s.loaded(w, fmt.Sprintf("the adapter %s is loaded", c.Name))
}

// unload answers POST /v1/unload_lora_adapter: replies under way end with it.
func (s *administration) unload(w http.ResponseWriter, r *http.Request) error {
	var c struct {
		Name string `json:"lora_name"`
	}
	if err := read(w, r, &c); err != nil {
		return err
	}
	if c.Name == "" {
		return bad("lora_name", "lora_name is missing; it names an adapter that was loaded")
	}
	if err := s.engine.DropAdapter(c.Name); err != nil {
		return refuse(http.StatusNotFound, "lora_name", "the adapter %s has not been loaded", c.Name)
	}
	return s.loaded(w, fmt.Sprintf("the adapter %s is gone", c.Name))
}

// loaded says which adapters there are, as SGLang does.
func (s *administration) loaded(w http.ResponseWriter, message string) error {
	all := map[string]string{}
	for _, a := range s.engine.Adapters() {
		all[a.Name] = a.Folder
	}
	return answer(w, map[string]any{"success": true, "message": message, "loaded_adapters": all})
}

// listModels answers GET /v1/models: the model, and its adapters as models that have it as their parent.
func listModels(s *server, w http.ResponseWriter) error {
	entry := func(id, root string, parent any) map[string]any {
		return map[string]any{"id": id, "object": "model", "created": s.started.Unix(), "owned_by": llm.Owner, "root": root,
			"parent": parent, "max_model_len": s.facts.MaxContext}
	}
	data := []any{entry(s.name, s.source.Name, nil)}
	for _, a := range s.engine.Adapters() {
		data = append(data, entry(a.Name, a.Folder, s.name))
	}
	return answer(w, map[string]any{"object": "list", "data": data})
}

// named holds a request to the model that is served, or to an adapter, which then draws its replies.
func named(s *server, model string, d *drawing) error {
	if model == "" || model == s.name || model == s.source.Name {
		return nil
	}
	if d.adapter = findAdapter(s, model); d.adapter != nil {
		return nil
	}
	names := s.name
	for _, a := range s.engine.Adapters() {
		names += ", " + a.Name
	}
	return refuse(http.StatusNotFound, "model", "the model %q does not exist; this server has %s", model, names)
}

// nameOf is the model that a request is answered by.
func nameOf(s *server, d *drawing) string { return cmp.Or(d.adapterName(), s.name) }

// versionOf is that of the weights, or of the adapter, that answer a request.
func versionOf(s *server, d *drawing) int64 {
	if d.adapter != nil {
		return d.adapter.Version
	}
	return s.engine.Version()
}
