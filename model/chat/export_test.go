package chat

import "fmt"

// CorpusTemplates are the templates of the corpus that are here, by name.
func CorpusTemplates() (map[string]string, error) {
	c, err := readCorpus()
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, t := range c.Templates {
		if t.Template != "" {
			out[name] = t.Template
		}
	}
	return out, nil
}

func TraitsOf(r Renderer) string { return fmt.Sprintf("%+v", r.(*templated).traits) }

// Undecided is how many bytes of a reply a stream holds that it may read again.
func Undecided(s *Stream) int { return len(s.buf) + len(s.marker) }
