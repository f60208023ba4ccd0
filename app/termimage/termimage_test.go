package termimage

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/color/palette"
	"image/draw"
	"image/png"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// scene has more colours than a palette, lines that repeat and lines that do not, and a height
// that six does not divide.
func scene(w, h int) image.Image {
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			c := color.NRGBA{uint8(3 * x), uint8(5 * y), uint8(x * y), 255}
			if y > h/2 {
				c = color.NRGBA{255, 0, 51, 255}
			}
			m.SetNRGBA(x, y, c)
		}
	}
	return m
}

func drawn(t *testing.T, p Protocol, m image.Image) string {
	t.Helper()
	var b bytes.Buffer
	if err := Draw(&b, p, m); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func same(t *testing.T, what string, got, want image.Image) {
	t.Helper()
	if got.Bounds() != want.Bounds() {
		t.Fatalf("%s: %v, want %v", what, got.Bounds(), want.Bounds())
	}
	for y := range want.Bounds().Dy() {
		for x := range want.Bounds().Dx() {
			if color.NRGBAModel.Convert(got.At(x, y)) != color.NRGBAModel.Convert(want.At(x, y)) {
				t.Fatalf("%s: %v at %d, %d, want %v", what, got.At(x, y), x, y, want.At(x, y))
			}
		}
	}
}

func decodePNG(t *testing.T, text string) image.Image {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	m, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestKittyTakesTheImageInPieces(t *testing.T) {
	m := scene(240, 190)
	rest, text, pieces := drawn(t, Kitty, m), "", 0
	for ; rest != ""; pieces++ {
		piece, after, ok := strings.Cut(rest, "\x1b\\")
		control, data, hasData := strings.Cut(strings.TrimPrefix(piece, "\x1b_G"), ";")
		want := "m=1"
		if after == "" {
			want = "m=0"
		}
		if pieces == 0 {
			want = "a=T,f=100,q=2," + want
		}
		if !ok || !hasData || control != want || len(data) > 4096 || after != "" && len(data)%4 != 0 {
			t.Fatalf("piece %d: %q, %d bytes", pieces, control, len(data))
		}
		text, rest = text+data, after
	}
	if pieces < 2 {
		t.Fatalf("%d pieces", pieces)
	}
	same(t, "kitty", decodePNG(t, text), m)
}

func TestITermTakesTheImageAsAFile(t *testing.T) {
	m := scene(20, 13)
	parts := regexp.MustCompile(`^\x1b\]1337;File=inline=1;size=(\d+):([^\a]+)\a$`).FindStringSubmatch(drawn(t, ITerm, m))
	if parts == nil {
		t.Fatal("not iTerm2's form")
	}
	if b, _ := base64.StdEncoding.DecodeString(parts[2]); strconv.Itoa(len(b)) != parts[1] {
		t.Errorf("%d bytes, told are %s", len(b), parts[1])
	}
	same(t, "iterm", decodePNG(t, parts[2]), m)
}

// unsixel reads sixels as DEC STD 070 says.
func unsixel(t *testing.T, s string) image.Image {
	t.Helper()
	s, ok := strings.CutPrefix(s, "\x1bP0;1q")
	s, ended := strings.CutSuffix(s, "\x1b\\")
	var w, h, n int
	if _, err := fmt.Sscanf(s, `"1;1;%d;%d`, &w, &h); err != nil || !ok || !ended {
		t.Fatal("no sixels", err)
	}
	s = strings.TrimPrefix(s, fmt.Sprintf(`"1;1;%d;%d`, w, h))
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	colors := map[int]color.NRGBA{}
	number := func() int {
		n = 0
		for s != "" && s[0] >= '0' && s[0] <= '9' {
			n, s = 10*n+int(s[0]-'0'), s[1:]
		}
		return n
	}
	x, top, ink, repeat := 0, 0, 0, 1
	for s != "" {
		c := s[0]
		s = s[1:]
		switch {
		case c == '#':
			ink = number()
			var rgb []int
			for strings.HasPrefix(s, ";") {
				s = s[1:]
				rgb = append(rgb, number())
			}
			if len(rgb) == 4 {
				at := func(percent int) uint8 { return uint8((percent*255 + 50) / 100) }
				colors[ink] = color.NRGBA{at(rgb[1]), at(rgb[2]), at(rgb[3]), 255}
			}
		case c == '!':
			repeat = number()
		case c == '$':
			x = 0
		case c == '-':
			x, top = 0, top+6
		case c >= '?' && c <= '~':
			for range repeat {
				for k := range 6 {
					if (c-'?')>>k&1 == 1 {
						if x >= w || top+k >= h {
							t.Fatalf("a dot at %d, %d", x, top+k)
						}
						m.SetNRGBA(x, top+k, colors[ink])
					}
				}
				x++
			}
			repeat = 1
		default:
			t.Fatalf("byte %q", c)
		}
	}
	return m
}

func TestSixelsAreTheImageInWebColours(t *testing.T) {
	m := scene(97, 41)
	want := image.NewPaletted(m.Bounds(), palette.WebSafe)
	draw.FloydSteinberg.Draw(want, want.Rect, m, image.Point{})
	same(t, "sixel", unsixel(t, drawn(t, Sixel, m)), want)
}

func TestTerminalsAreKnownByTheirEnvironment(t *testing.T) {
	for env, want := range map[string]Protocol{
		"TERM=xterm-256color":                             None,
		"TERM=":                                           None,
		"TERM=xterm-kitty":                                Kitty,
		"TERM=xterm-256color KITTY_WINDOW_ID=1":           Kitty,
		"TERM=xterm-ghostty":                              Kitty,
		"TERM=xterm-256color TERM_PROGRAM=iTerm.app":      ITerm,
		"TERM=xterm-256color TERM_PROGRAM=WezTerm":        ITerm,
		"TERM=xterm-256color LC_TERMINAL=iTerm2":          ITerm, // over ssh
		"TERM=foot":                                       Sixel,
		"TERM=foot-extra":                                 Sixel,
		"TERM=xterm-sixel":                                Sixel,
		"TERM=tmux-256color TERM_PROGRAM=iTerm.app":       None,
		"TERM=xterm-kitty TMUX=/tmp/tmux-0/default":       None,
		"TERM=screen STY=1.pts KITTY_WINDOW_ID=1":         None,
		"TERM=xterm-256color TERM_PROGRAM=Apple_Terminal": None,
	} {
		all := map[string]string{}
		for _, pair := range strings.Fields(env) {
			name, value, _ := strings.Cut(pair, "=")
			all[name] = value
		}
		if got := Detect(func(name string) string { return all[name] }); got != want {
			t.Errorf("%s: %s, want %s", env, got, want)
		}
	}
}
