package datasets

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"agentcli/internal/splitmix"
	"agentcli/media/png"
	"agentcli/traj"
)

// fineprint: a plate in one of nine coloured fields, whose print is lost where the image is
// shown at a sixth of its size: stripes of a period of six pixels are grey then, whichever way
// they run. A crop of the original shows them. Level 1 has nine fixed colours, which tell a
// field's place. Level 2 has two plates, and the question names one by its field's colour. In
// level 3 the colours are in any order. In level 4 the print is a small number.

// Sizes of an image of fineprint, in pixels.
const (
	fineSide   = 672
	fineField  = fineSide / 3
	finePlate  = 72
	fineShift  = 18 // of a plate, at most, from the middle of its field
	finePeriod = 6  // of the stripes
	fineShown  = 112
	fineBox    = 20 // side of the box that shows a plate, in pixels of the image as it is shown
)

// fineColours are those of the fields, then black and white.
var fineColours = []struct {
	name string
	rgb  [3]byte
}{
	{"red", [3]byte{214, 48, 49}}, {"green", [3]byte{39, 174, 96}}, {"blue", [3]byte{41, 98, 214}},
	{"yellow", [3]byte{241, 196, 15}}, {"purple", [3]byte{142, 68, 173}}, {"cyan", [3]byte{0, 184, 212}},
	{"orange", [3]byte{230, 126, 34}}, {"pink", [3]byte{255, 143, 190}}, {"brown", [3]byte{121, 85, 72}},
	{"black", [3]byte{0, 0, 0}}, {"white", [3]byte{255, 255, 255}},
}

const fineFields, fineBlack, fineWhite = 9, 9, 10

// fineWays are the ways in which stripes run.
var fineWays = []string{"horizontal", "vertical", "rising", "falling"}

// Questions of fineprint.
const (
	fineQuestion       = "Which way do the stripes run: horizontal, vertical, rising or falling?"
	fineColourQuestion = "Which way do the stripes in the %s field run: horizontal, vertical, rising or falling?"
	fineNumberQuestion = "Which number is on the plate?"
)

// finePrint is one plate.
type finePrint struct {
	field, dx, dy int // dx and dy: of its middle from the field's
	phase, way    int
	number        int // 0: it has stripes
}

// fineScene is an image with its question: the first plate's.
type fineScene struct {
	level  int
	fields [fineFields]int // their colours
	plates []finePrint
}

const fineShifts = 2*fineShift + 1

// fineSpace is the product of what fineSceneOf takes out of a number.
func fineSpace(level int) uint64 {
	const places = fineFields * fineShifts * fineShifts
	const stripes = finePeriod * 4
	switch level {
	case 2:
		return places * stripes * (places / fineFields * (fineFields - 1) * stripes)
	case 3:
		return places * stripes * 362880 // orders of nine colours
	case 4:
		return places * 90
	}
	return places * stripes
}

// mixed takes numbers out of one.
type mixed uint64

func (m *mixed) take(n int) int {
	v := int(uint64(*m) % uint64(n))
	*m /= mixed(n)
	return v
}

// fineSceneOf is scene number i of a level.
func fineSceneOf(level int, i uint64) fineScene {
	m := mixed(i)
	s := fineScene{level: level}
	for k := range s.fields {
		s.fields[k] = k
	}
	plate := func(fields int) finePrint {
		p := finePrint{field: m.take(fields), dx: m.take(fineShifts) - fineShift, dy: m.take(fineShifts) - fineShift}
		if level == 4 {
			p.number = 10 + m.take(90)
		} else {
			p.phase, p.way = m.take(finePeriod), m.take(len(fineWays))
		}
		return p
	}
	s.plates = append(s.plates, plate(fineFields))
	switch level {
	case 2:
		other := plate(fineFields - 1)
		if other.field >= s.plates[0].field {
			other.field++
		}
		s.plates = append(s.plates, other)
	case 3:
		for k := fineFields - 1; k > 0; k-- {
			j := m.take(k + 1)
			s.fields[k], s.fields[j] = s.fields[j], s.fields[k]
		}
	}
	return s
}

func fineMake(level int, i uint64) (made, bool) {
	s := fineSceneOf(level, i)
	// The split goes by the places: images that differ in their print alone are in one.
	var key strings.Builder
	id := fmt.Sprint(level)
	if level == 3 {
		id += fmt.Sprint("-", strings.Trim(strings.ReplaceAll(fmt.Sprint(s.fields), " ", ""), "[]"))
	}
	key.WriteString(id)
	for _, p := range s.plates {
		place := fmt.Sprintf("-%d.%d.%d", p.field, fineShift+p.dx, fineShift+p.dy)
		key.WriteString(place)
		id += place + "." + p.print()
	}
	return made{id: id, key: key.String(), question: s.question(), answer: s.plates[0].answer(), image: s.image}, true
}

func (p finePrint) print() string {
	if p.number > 0 {
		return strconv.Itoa(p.number)
	}
	return fineWays[p.way][:1] + strconv.Itoa(p.phase)
}

func (p finePrint) answer() string {
	if p.number > 0 {
		return strconv.Itoa(p.number)
	}
	return fineWays[p.way]
}

func (s fineScene) question() string {
	switch s.level {
	case 2:
		return fmt.Sprintf(fineColourQuestion, fineColours[s.fields[s.plates[0].field]].name)
	case 4:
		return fineNumberQuestion
	}
	return fineQuestion
}

// image is the scene as a PNG file.
func (s fineScene) image() []byte {
	pixels := make([]byte, fineSide*fineSide)
	for y := range fineSide {
		row := pixels[y*fineSide:][:fineSide]
		if y%fineField > 0 {
			copy(row, pixels[(y-1)*fineSide:])
			continue
		}
		for x := range row {
			row[x] = byte(s.fields[y/fineField*3+x/fineField])
		}
	}
	for _, p := range s.plates {
		left, top := p.corner()
		for y := top; y < top+finePlate; y++ {
			for x := left; x < left+finePlate; x++ {
				pixels[y*fineSide+x] = p.colour(x, y)
			}
		}
	}
	return fineFile(fineSide, fineSide, pixels)
}

// corner is the upper left pixel of a plate.
func (p finePrint) corner() (x, y int) {
	middle := func(field, shift int) int { return field*fineField + fineField/2 + shift - finePlate/2 }
	return middle(p.field%3, p.dx), middle(p.field/3, p.dy)
}

// colour is that of a plate's pixel.
func (p finePrint) colour(x, y int) byte {
	if p.number > 0 {
		left, top := p.corner()
		return p.digit(x-left, y-top)
	}
	across := [...]int{y, x, x + y, x - y + fineSide}[p.way]
	if (across+p.phase)%finePeriod < finePeriod/2 {
		return fineWhite
	}
	return fineBlack
}

// fineDigits are the digits' 3 × 5 dots, row by row from the highest bit.
var fineDigits = [10]uint16{0b111101101101111, 0b010110010010111, 0b111001111100111, 0b111001111001111, 0b101101111001001,
	0b111100111001111, 0b111100111101111, 0b111001001001001, 0b111101111101111, 0b111101111001111}

const fineDot = 3 // pixels of a side of a digit's dot

// digit is the colour of a pixel of a plate with two digits in its middle.
func (p finePrint) digit(x, y int) byte {
	const width, height = (3 + 1 + 3) * fineDot, 5 * fineDot
	x, y = x-(finePlate-width)/2, y-(finePlate-height)/2
	column, row := x/fineDot, y/fineDot
	if x < 0 || x >= width || y < 0 || y >= height || column == 3 {
		return fineWhite
	}
	dots := fineDigits[p.number/10]
	if column > 3 {
		dots = fineDigits[p.number%10]
	}
	if dots>>(14-(row*3+column%4))&1 == 1 {
		return fineBlack
	}
	return fineWhite
}

func fineFile(width, height int, pixels []byte) []byte {
	colours := make([][3]byte, len(fineColours))
	for i, c := range fineColours {
		colours[i] = c.rgb
	}
	return png.Encode(width, height, colours, pixels)
}

// fineBoxOf is the box that shows a field's plate wherever it is, in pixels of the image at
// fineShown × fineShown.
func fineBoxOf(field int) [4]int {
	middle := func(k int) int { return (2*k + 1) * fineShown / 6 }
	x, y := middle(field%3), middle(field/3)
	return [4]int{x - fineBox/2, y - fineBox/2, x + fineBox/2, y + fineBox/2}
}

// fineLook is the call that zooms into a field.
func fineLook(field int) string {
	b := fineBoxOf(field)
	return fmt.Sprintf("<tool_call>\n{\"name\": \"image_zoom_in_tool\", \"arguments\": {\"bbox_2d\": [%d, %d, %d, %d]}}\n</tool_call>",
		b[0], b[1], b[2], b[3])
}

// fineDemonstrations are the splits that a model with random weights learns the skills from,
// and no more of where to look than a bias: places (a look at the right field), crops (a plate
// alone, with its answer), and traces, of which half look. Of these three tenths look at the
// right field for certain, in glances two, the others at any of the nine; in uniform all do the latter. What
// follows a look is the true answer, even where the field was another: so looking is as
// likely as not looking, and where to look is left to be found.
var fineDemonstrations = []demonstration{
	{"places", func(level int, i, _ uint64) (made, bool) {
		m, ok := fineMake(level, i)
		return m.replies(fineLook(fineSceneOf(level, i).plates[0].field)), ok
	}},
	{"crops", func(level int, i, _ uint64) (made, bool) {
		m, ok := fineMake(level, i)
		m.image = fineSceneOf(level, i).closeUp
		return m.replies(m.answer), ok
	}},
	{"traces", func(level int, i, seed uint64) (made, bool) { return fineTrace(level, i, seed, 3) }},
	{"glances", func(level int, i, seed uint64) (made, bool) { return fineTrace(level, i, seed, 2) }},
	{"uniform", func(level int, i, seed uint64) (made, bool) { return fineTrace(level, i, seed, 0) }},
}

// fineTrace looks half of the time; certain tenths of the looks are at the right field.
func fineTrace(level int, i, seed uint64, certain int) (made, bool) {
	m, ok := fineMake(level, i)
	draw := mixed(splitmix.Mix(splitmix.Mix(seed+1) ^ i))
	if draw.take(2) == 0 {
		guess := fineWays[draw.take(len(fineWays))]
		if level == 4 {
			guess = strconv.Itoa(10 + draw.take(90))
		}
		return m.replies(guess), ok
	}
	field := fineSceneOf(level, i).plates[0].field
	if draw.take(10) >= certain {
		field = draw.take(fineFields)
	}
	return m.replies(fineLook(field), m.answer), ok
}

// closeUp is what the box around the first plate's field shows, as a PNG file of its own.
func (s fineScene) closeUp() []byte {
	const scale = fineSide / fineShown
	const side = fineBox * scale
	p := s.plates[0]
	b := fineBoxOf(p.field)
	left, top := p.corner()
	pixels := make([]byte, side*side)
	for k := range pixels {
		x, y := b[0]*scale+k%side, b[1]*scale+k/side
		pixels[k] = byte(s.fields[y/fineField*3+x/fineField])
		if x >= left && x < left+finePlate && y >= top && y < top+finePlate {
			pixels[k] = p.colour(x, y)
		}
	}
	return fineFile(side, side, pixels)
}

// replies is the problem with the replies of a demonstration.
func (m made) replies(texts ...string) made {
	m.demonstrated = texts
	return m
}

// Replies are those that a task of a demonstration has the model say, one a turn; nil: it has
// none. A row of a file has them in a column of that name.
func Replies(t *traj.Task) []string {
	var meta struct {
		Replies []string `json:"replies"`
	}
	if json.Unmarshal(t.Meta, &meta) != nil {
		return nil
	}
	return meta.Replies
}
