package chat

import (
	"fmt"
	"regexp"
	"strings"
)

// gemma4: <|tool_call>call:f{key:<|"|>text<|"|>,n:3}<tool_call|>, as Gemma 4 writes
// it. Thinking stands in <|channel>thought and <channel|>.
var gemma4 = format{name: "gemma4", special: true, find: findGemma4, read: readGemma4, begins: []string{gemma4Open},
	think: [2]string{"<|channel>thought", "<channel|>"}}

const gemma4Open, gemma4Close, gemma4Quote = "<|tool_call>", "<tool_call|>", `<|"|>`

func findGemma4(_ *reading, text string, at int) int { return index(text, gemma4Open, at) }

func readGemma4(r *reading, text string, at int) int {
	g := &gemma4Reader{s: text, at: at + len(gemma4Open)}
	name, args, err := g.call()
	if err != nil {
		end := extent(text, at+len(gemma4Open), gemma4Open, gemma4Close)
		r.bad(text[at:end], err.Error()+"; write call:name{key:value} between "+gemma4Open+" and "+gemma4Close)
		return end
	}
	r.call(name, args)
	return g.at
}

type gemma4Reader struct {
	s  string
	at int
}

var (
	gemma4Name = regexp.MustCompile(`^[A-Za-z_][\w.\-]*`)
	gemma4Bare = regexp.MustCompile(`^[^,:\[\]{}<]+`)
)

func (g *gemma4Reader) take(token string) bool {
	g.at = skipBlanks(g.s, g.at)
	if strings.HasPrefix(g.s[g.at:], token) {
		g.at += len(token)
		return true
	}
	return false
}

func (g *gemma4Reader) wrong(want string) error {
	if g.at >= len(g.s) {
		return fmt.Errorf("it was cut off where %s should be", want)
	}
	return fmt.Errorf("there should be %s, not %q", want, head(g.s[g.at:], 20))
}

func (g *gemma4Reader) call() (name, args string, err error) {
	if !g.take("call:") {
		return "", "", g.wrong("call:")
	}
	if name = gemma4Name.FindString(g.s[g.at:]); name == "" {
		return "", "", g.wrong("the name of a function")
	}
	g.at += len(name)
	if !g.take("{") {
		return "", "", g.wrong("{")
	}
	if args, err = g.object(0); err != nil {
		return "", "", err
	}
	if !g.take(gemma4Close) && g.at < len(g.s) {
		return "", "", g.wrong(gemma4Close)
	}
	return name, args, nil
}

// object reads what follows an opening brace, as JSON.
func (g *gemma4Reader) object(depth int) (string, error) {
	var a params
	for !g.take("}") {
		key, err := g.word("the name of an argument")
		if err != nil {
			return "", err
		}
		if !g.take(":") {
			return "", g.wrong(":")
		}
		v, err := g.value(depth + 1)
		if err != nil {
			return "", err
		}
		a.add(key, v)
		if !g.take(",") && !strings.HasPrefix(g.s[g.at:], "}") {
			return "", g.wrong(", or }")
		}
	}
	return a.object(), nil
}

// word reads a text in its quotes, or bare letters.
func (g *gemma4Reader) word(what string) (string, error) {
	if g.take(gemma4Quote) {
		end := strings.Index(g.s[g.at:], gemma4Quote)
		if end < 0 {
			return "", fmt.Errorf("a text does not end with %s", gemma4Quote)
		}
		text := g.s[g.at : g.at+end]
		g.at += end + len(gemma4Quote)
		return text, nil
	}
	text := gemma4Bare.FindString(g.s[g.at:])
	if strings.TrimSpace(text) == "" {
		return "", g.wrong(what)
	}
	g.at += len(text)
	return strings.TrimSpace(text), nil
}

func (g *gemma4Reader) value(depth int) (string, error) {
	if depth > 100 {
		return "", fmt.Errorf("it is nested more than 100 deep")
	}
	switch {
	case g.take("{"):
		return g.object(depth)
	case g.take("["):
		var items []string
		for !g.take("]") {
			v, err := g.value(depth + 1)
			if err != nil {
				return "", err
			}
			items = append(items, v)
			if !g.take(",") && !strings.HasPrefix(g.s[g.at:], "]") {
				return "", g.wrong(", or ]")
			}
		}
		return "[" + strings.Join(items, ", ") + "]", nil
	case strings.HasPrefix(g.s[g.at:], gemma4Quote):
		text, err := g.word("a value")
		return pyString(text), err
	}
	text, err := g.word("a value")
	if err != nil {
		return "", err
	}
	switch text {
	case "true", "false", "null":
		return text, nil
	}
	if n, ok := number(text); ok {
		return n, nil
	}
	return pyString(text), nil
}
