// Package termimage draws images in terminals that can show them: by kitty's graphics
// protocol, by iTerm2's inline images, and as sixels (DEC STD 070, chapter 9).
package termimage

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color/palette"
	"image/draw"
	"image/png"
	"io"
	"slices"
	"strings"
)

// Protocol is how a terminal takes images.
type Protocol string

// The protocols; None: it takes none.
const (
	None  Protocol = "none"
	Kitty Protocol = "kitty"
	ITerm Protocol = "iterm"
	Sixel Protocol = "sixel"
)

// Protocols are all of them.
var Protocols = []Protocol{Kitty, ITerm, Sixel, None}

// Names are the protocols with commas.
func Names() string {
	var all []string
	for _, p := range Protocols {
		all = append(all, string(p))
	}
	return strings.Join(all, ", ")
}

// Detect tells the protocol by the environment that terminals set. Nothing is asked of the
// terminal, which might never answer. Within tmux and screen, which pass no images on, it is
// None.
func Detect(getenv func(string) string) Protocol {
	term, program := getenv("TERM"), getenv("TERM_PROGRAM")
	has := func(s string, all ...string) bool {
		return slices.ContainsFunc(all, func(name string) bool { return strings.HasPrefix(strings.ToLower(s), name) })
	}
	switch {
	case getenv("TMUX") != "" || getenv("STY") != "" || has(term, "tmux", "screen"):
		return None
	case getenv("KITTY_WINDOW_ID") != "" || has(term, "xterm-kitty", "xterm-ghostty") || has(program, "ghostty"):
		return Kitty
	case has(program, "iterm", "wezterm", "mintty") || has(getenv("LC_TERMINAL"), "iterm2"):
		return ITerm
	case has(term, "foot", "mlterm", "contour") || strings.Contains(term, "sixel"):
		return Sixel
	}
	return None
}

// Draw writes an image where the cursor is. The cursor is below it then, or at its end.
func Draw(w io.Writer, p Protocol, m image.Image) error {
	if p == None {
		return nil
	}
	if p == Sixel {
		_, err := w.Write(sixels(m))
		return err
	}
	var file bytes.Buffer
	if err := png.Encode(&file, m); err != nil {
		return err
	}
	text := base64.StdEncoding.EncodeToString(file.Bytes())
	if p == ITerm {
		_, err := fmt.Fprintf(w, "\x1b]1337;File=inline=1;size=%d:%s\a", file.Len(), text)
		return err
	}
	const most = 4096           // bytes of base64 in one piece
	control := "a=T,f=100,q=2," // show a PNG, and do not answer
	for pieces := len(text); ; {
		n := min(most, pieces)
		more := 0
		if n < pieces {
			more = 1
		}
		at := len(text) - pieces
		if _, err := fmt.Fprintf(w, "\x1b_G%sm=%d;%s\x1b\\", control, more, text[at:at+n]); err != nil {
			return err
		}
		if pieces -= n; pieces == 0 {
			return nil
		}
		control = ""
	}
}

// sixels is an image in at most 256 colours, dithered: bands of six rows, in each a line for
// each colour that it has.
func sixels(m image.Image) []byte {
	size := m.Bounds()
	p := image.NewPaletted(image.Rect(0, 0, size.Dx(), size.Dy()), palette.WebSafe)
	draw.FloydSteinberg.Draw(p, p.Rect, m, size.Min)
	var b bytes.Buffer
	fmt.Fprintf(&b, "\x1bP0;1q\"1;1;%d;%d", p.Rect.Dx(), p.Rect.Dy())
	for i, c := range p.Palette {
		r, g, bl, _ := c.RGBA()
		percent := func(v uint32) uint32 { return (v*100 + 0x7fff) / 0xffff }
		fmt.Fprintf(&b, "#%d;2;%d;%d;%d", i, percent(r), percent(g), percent(bl))
	}
	for top := 0; top < p.Rect.Dy(); top += 6 {
		rows := map[uint8][]byte{} // of each colour, a bit for each of the six rows
		for y := top; y < min(top+6, p.Rect.Dy()); y++ {
			for x := range p.Rect.Dx() {
				c := p.ColorIndexAt(x, y)
				if rows[c] == nil {
					rows[c] = make([]byte, p.Rect.Dx())
				}
				rows[c][x] |= 1 << (y - top)
			}
		}
		for c := range len(p.Palette) {
			if bits := rows[uint8(c)]; bits != nil {
				fmt.Fprintf(&b, "#%d", c)
				writeRuns(&b, bits)
				b.WriteByte('$') // back to the band's left end
			}
		}
		b.WriteByte('-')
	}
	b.WriteString("\x1b\\")
	return b.Bytes()
}

// writeRuns writes a colour's line, repeats shortened.
func writeRuns(b *bytes.Buffer, bits []byte) {
	for i := 0; i < len(bits); {
		n := 1
		for i+n < len(bits) && bits[i+n] == bits[i] {
			n++
		}
		if n > 3 {
			fmt.Fprintf(b, "!%d", n)
			b.WriteByte('?' + bits[i])
		} else {
			b.Write(bytes.Repeat([]byte{'?' + bits[i]}, n))
		}
		i += n
	}
}
