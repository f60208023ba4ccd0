package models

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"agentcli/internal/setting"
	"agentcli/model/chat"
	"agentcli/model/tokenizer"
)

// maxTemplate is the size of a file that is read as a chat template.
const maxTemplate = 4 << 20

// Renderer is the renderer of a model's chat template, or of the one that named names: a
// file with a template, or one of chat.Families.
func Renderer(path string, tok *tokenizer.Tokenizer, named string) (chat.Renderer, error) {
	if named == "" {
		r, err := chat.Choose(tok.ChatTemplate(), "", tok)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return r, nil
	}
	text, family, err := NamedTemplate(named)
	if err != nil {
		return nil, err
	}
	var r chat.Renderer
	if family != "" {
		r, err = chat.For(family, tok)
	} else {
		r, err = chat.Choose(text, "", tok)
	}
	if err != nil {
		return nil, setting.Errorf("%s %s: %w", setting.Name("ChatTemplate"), named, err)
	}
	return r, nil
}

// OpenRenderer opens the tokenizer of a model, and makes the renderer.
func OpenRenderer(path, named string) (chat.Renderer, error) {
	tok, err := tokenizer.Open(path)
	if err != nil {
		return nil, err
	}
	return Renderer(path, tok, named)
}

// NamedTemplate is the text of a chat template's file, or the family that named names. The
// error wraps chat.ErrNoFormat where it is neither.
func NamedTemplate(named string) (text, family string, err error) {
	refuse := func(format string, a ...any) (string, string, error) {
		return "", "", setting.Errorf("%s %s: "+format, append([]any{setting.Name("ChatTemplate"), named}, a...)...)
	}
	info, err := os.Stat(named)
	switch {
	case slices.Contains(chat.Families(), named):
		return "", named, nil
	case errors.Is(err, fs.ErrNotExist):
		return refuse("there is no such file, and %w; there are %s", chat.ErrNoFormat, strings.Join(chat.Families(), ", "))
	case err != nil:
		return refuse("%w", err)
	case !info.Mode().IsRegular():
		return refuse("it is no file")
	case info.Size() > maxTemplate:
		return refuse("it has %d bytes; a chat template has %d at most", info.Size(), maxTemplate)
	}
	b, err := os.ReadFile(named)
	if err != nil {
		return refuse("%w", err)
	}
	if len(b) == 0 {
		return refuse("the file is empty")
	}
	return string(b), "", nil
}

// TemplateOf is the text by whose hash a file says which template made its prompts: the
// model's own, that of the file that is named, or the name of a family.
func TemplateOf(own, named string) (string, error) {
	if named == "" {
		return own, nil
	}
	text, family, err := NamedTemplate(named)
	return text + family, err
}

// TemplateFile is the file that a named template is in; none where it is a family, or none is
// named.
func TemplateFile(named string) []string {
	if named == "" || slices.Contains(chat.Families(), named) {
		return nil
	}
	return []string{named}
}
