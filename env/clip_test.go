package env

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClipKeepsClosingTags(t *testing.T) {
	long := strings.Repeat("Doc 1(Title: a b) c d e. ", 300)
	for _, c := range []struct{ name, text, end string }{
		{"information", "\n\n<information>" + long + "\n</information>\n\n", "</information>\n\n"},
		{"nested", "<a><b.c:d-e>" + long + "</b.c:d-e>\n</a>", "</b.c:d-e>\n</a>"},
		{"a tag in the middle only", "<a>" + long + "</a> and " + long, "e. "},
		{"no tag", long, "e. "},
		{"not a closing tag", long + "a < b </ c>", " c>"},
	} {
		for _, n := range []int{40, 200, 1000} {
			chars := clip(c.text, n)
			if !strings.HasSuffix(chars, c.end) || !strings.Contains(chars, "characters left out") {
				t.Errorf("%s: %d characters end with %q", c.name, n, chars[max(0, len(chars)-30):])
			}
			words := clipTokens(c.text, n, countWords)
			if !strings.HasSuffix(words, c.end) || !strings.Contains(words, "characters left out") || countWords(words) > n {
				t.Errorf("%s: %d tokens: %d, end with %q", c.name, n, countWords(words), words[max(0, len(words)-30):])
			}
			if n > 100 && !strings.HasPrefix(words, c.text[:20]) {
				t.Errorf("%s: the beginning is gone: %q", c.name, words[:20])
			}
		}
	}
}

// countWords takes white space with the word before it, as if each were a token.
func countWords(s string) int { return len(strings.Fields(s)) }

func TestClipTokensFillsTheLimit(t *testing.T) {
	text := strings.Repeat("word ", 1000)
	for _, n := range []int{8, 50, 999} {
		if got := countWords(clipTokens(text, n, countWords)); got > n || got < n-2 {
			t.Errorf("limit %d: %d tokens", n, got)
		}
	}
	if got := clipTokens(text, 1000, countWords); got != text {
		t.Error("what fits is left alone")
	}
	if got := clipTokens("<a>"+text+"</a>", 1, countWords); got != "</a>" {
		t.Errorf("where nothing else fits: %q", got)
	}
	if got := clipTokens(text, 0, countWords); countWords(got) > 0 {
		t.Errorf("no room at all: %q", got)
	}
}

func FuzzClipTokens(f *testing.F) {
	f.Add("<information>Doc 1 ä\xff </information>\n", 5)
	f.Add(strings.Repeat("a b\n", 50)+"</x>", 12)
	f.Fuzz(func(t *testing.T, s string, n int) {
		n %= 100
		if n < 0 {
			n = -n
		}
		count := func(s string) int { return (len(s) + 3) / 4 }
		got := clipTokens(s, n, count)
		valid := strings.ToValidUTF8(s, "�")
		switch {
		case !utf8.ValidString(got):
			t.Fatalf("%q", got)
		case count(got) > n:
			t.Fatalf("%d of %d tokens: %q", count(got), n, got)
		case count(valid) <= n && got != valid:
			t.Fatalf("%q became %q", valid, got)
		case n >= 80 && !strings.HasSuffix(got, valid[len(valid)-len(closingTags.FindString(valid[max(0, len(valid)-64):])):]):
			t.Fatalf("%q lost its tags: %q", valid, got)
		}
		_ = clip(s, n)
	})
}
