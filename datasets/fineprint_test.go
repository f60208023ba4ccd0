package datasets

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"image/png"
	"strings"
	"testing"

	"agentcli/media"
	"agentcli/media/album"
	"agentcli/media/resize"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

// The hashes hold on any machine and with any version of Go: images are known by them.
func TestAnImageOfFineprintIsTheSameBytesEverywhere(t *testing.T) {
	for level, want := range []string{
		"04138da430f9b6bbfa4bb5bc0e63f69daa3ee1003d4f0f8a7afebbca6a38f45f", "bb4cc6208232e140ea99749897d020e9ef57fe0f4dfd5735cf94eb49cc7e4b89",
		"8a226eddcd71f49f99694e73a5eabaf0a44adbb3073c327c85885a4e5677c9a6", "7bada08085ad0f3e406f7158a8f1fb3dde957c432a13ad716b37992b3a1ebc48",
	} {
		got := tasks(t, "fineprint", Options{Level: string(rune('1' + level)), Limit: 1})[0]
		m := got.Messages[0]
		if len(m.Images) != 1 || m.Content != traj.ImageMark+got.Question || m.Images[0].Width != fineSide {
			t.Fatalf("level %d: %+v", level+1, got)
		}
		if m.Images[0].Hash != want {
			t.Errorf("level %d: %s has another image: %s", level+1, got.ID, m.Images[0].Hash)
		}
	}
}

// Pixels are counted in the file by two decoders: stripes change every three pixels across
// the way that the answer names, and not at all along it.
func TestThePrintOfFineprintIsWhatTheAnswerSays(t *testing.T) {
	steps := map[string][2]int{"horizontal": {1, 0}, "vertical": {0, 1}, "rising": {1, -1}, "falling": {1, 1}}
	seen := map[string]int{}
	for _, level := range []string{"1", "2", "3"} {
		for _, task := range tasks(t, "fineprint", Options{Level: level, Limit: 16}) {
			im := &task.Messages[0].Images[0]
			pixels, err := album.Pixels(im)
			if err != nil {
				t.Fatal(err)
			}
			other, err := png.Decode(bytes.NewReader(im.Bytes))
			if err != nil {
				t.Fatal(err)
			}
			at := func(x, y int) [3]byte { return [3]byte(pixels.Pix[3*(y*fineSide+x):]) }
			for k := range 1000 {
				x, y := k*37%fineSide, k*101%fineSide
				if r, g, b, _ := other.At(x, y).RGBA(); at(x, y) != [3]byte{byte(r >> 8), byte(g >> 8), byte(b >> 8)} {
					t.Fatalf("%s: the decoders differ at %d, %d", task.ID, x, y)
				}
			}
			x, y := plateOf(t, at, task.Question)
			for way, step := range steps {
				same := true
				for n := range 12 {
					same = same && at(x+n*step[0], y+n*step[1]) == at(x, y)
				}
				if same != (way == task.Answers[0]) {
					t.Errorf("%s: the stripes run %s: %v, the answer is %v", task.ID, way, same, task.Answers)
				}
			}
			seen[task.Answers[0]]++
		}
	}
	for way := range steps {
		if seen[way] < 5 {
			t.Errorf("answers are not alike: %v", seen)
		}
	}
}

// plateOf finds the middle of the plate that a question is about, by its field's colour where
// the question names one.
func plateOf(t *testing.T, at func(x, y int) [3]byte, question string) (int, int) {
	for field := range fineFields {
		x0, y0 := field%3*fineField, field/3*fineField
		colour := ""
		for _, c := range fineColours {
			if c.rgb == at(x0, y0) {
				colour = c.name
			}
		}
		if strings.Contains(question, " field ") && !strings.Contains(question, " "+colour+" field ") {
			continue
		}
		for y := range fineField {
			for x := range fineField {
				if c := at(x0+x, y0+y); c == fineColours[fineBlack].rgb || c == fineColours[fineWhite].rgb {
					return x0 + x + finePlate/2, y0 + y + finePlate/2
				}
			}
		}
	}
	t.Fatal("there is no plate")
	return 0, 0
}

// What a model is shown does not tell: images that differ in their stripes alone are nearly
// the same there, and far from it in the crop.
func TestStripesAreGoneWhereFineprintIsShown(t *testing.T) {
	difference := func(a, b *media.Image) float64 {
		sum := 0
		for i := range a.Pix {
			d := int(a.Pix[i]) - int(b.Pix[i])
			sum += max(d, -d)
		}
		return float64(sum) / float64(len(a.Pix))
	}
	sees := func(s fineScene, box *[4]int) *media.Image {
		m, err := media.Decode(s.image(), media.Limits{})
		if err == nil && box != nil {
			m, err = m.Crop(6*box[0], 6*box[1], 6*box[2], 6*box[3])
		}
		if err != nil {
			t.Fatal(err)
		}
		return resize.Torchvision.Resize(m, fineShown, fineShown)
	}
	worst, least := 0.0, 255.0
	for k := range uint64(6) {
		s := fineSceneOf(1, k*7919)
		box := fineBoxOf(s.plates[0].field)
		for way := range fineWays {
			other := s
			other.plates = []finePrint{s.plates[0]}
			if other.plates[0].way = way; way == s.plates[0].way {
				continue
			}
			worst = max(worst, difference(sees(s, nil), sees(other, nil)))
			least = min(least, difference(sees(s, &box), sees(other, &box)))
		}
	}
	t.Logf("at most %.3f levels differ in the image, at least %.1f in the crop", worst, least)
	if worst > .15 || least < 20 {
		t.Errorf("images differ by up to %.3f levels, crops by at least %.1f", worst, least)
	}
}

func TestDemonstrationsOfFineprint(t *testing.T) {
	test := map[string]bool{}
	for _, task := range tasks(t, "fineprint", Options{Split: "test", Limit: 100}) {
		test[task.Messages[0].Images[0].Hash] = true
	}
	for split, want := range map[string]struct{ looks, right, answers float64 }{
		"places": {1, 1, 0}, "crops": {0, 0, 1}, "traces": {.5, .5 * (.3 + .7/9), 1},
		"glances": {.5, .5 * (.2 + .8/9), 1}, "uniform": {.5, .5 / 9, 1},
	} {
		const n = 200
		looks, right, answers, told := 0., 0., 0., 0.
		for _, task := range tasks(t, "fineprint", Options{Split: split, Limit: n}) {
			replies := Replies(&task)
			if test[task.Messages[0].Images[0].Hash] || !strings.HasPrefix(task.ID, "fineprint/"+split+"-") {
				t.Fatalf("%s: %s is a problem of the test split or has its id", split, task.ID)
			}
			first, last := replies[0], replies[len(replies)-1]
			if strings.HasPrefix(first, "<tool_call>") {
				looks++
				field := int(task.ID[len("fineprint/"+split+"-1-")] - '0')
				if first == fineLook(field) {
					right++
				}
			}
			if strings.Contains(strings.Join(fineWays, " "), last) {
				answers++
			}
			if len(replies) == 2 && last != task.Answers[0] {
				t.Errorf("%s: %q after a look, the answer is %q", task.ID, last, task.Answers[0])
			} else if last == task.Answers[0] {
				told++
			}
		}
		got := []float64{looks / n, right / n, answers / n}
		if d := cmp.Diff([]float64{want.looks, want.right, want.answers}, got, near(.08)); d != "" {
			t.Errorf("%s: shares of looks, looks at the right field, answers: %s", split, d)
		}
		if guessed := (told - looks) / max(n-looks, 1); (split == "traces" || split == "glances") && (guessed < .15 || guessed > .35) {
			t.Errorf("without a look %.2f of the answers are right, chance is .25", guessed)
		}
	}
}

func near(margin float64) cmp.Option {
	return cmp.Comparer(func(a, b float64) bool { return a-b < margin && b-a < margin })
}

// Whatever the shift of a plate, the box of its field shows all of it.
func TestTheBoxOfAFieldShowsItsWholePlate(t *testing.T) {
	for field := range fineFields {
		for _, shift := range []int{-fineShift, fineShift} {
			x, y := finePrint{field: field, dx: shift, dy: shift}.corner()
			b := fineBoxOf(field)
			if x < 6*b[0] || y < 6*b[1] || x+finePlate > 6*b[2] || y+finePlate > 6*b[3] {
				t.Errorf("field %d, shift %d: plate at %d, %d, box %v", field, shift, x, y, b)
			}
		}
	}
}

func TestACloseUpIsTheCropOfItsImage(t *testing.T) {
	for k := range uint64(8) {
		s := fineSceneOf(3, k*104729)
		whole, err := album.Open(s.image(), "", media.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		b := fineBoxOf(s.plates[0].field)
		crop, err := album.Crop(t.Context(), &whole, [4]int{6 * b[0], 6 * b[1], 6 * b[2], 6 * b[3]})
		if err != nil {
			t.Fatal(err)
		}
		m, err := media.Decode(s.closeUp(), media.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(m.Pix); hex.EncodeToString(sum[:]) != crop.Hash {
			t.Errorf("scene %d: other pixels", k)
		}
	}
}
