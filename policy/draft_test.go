package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// What follows the newest place where the last three ids stand is guessed; a text that repeats
// itself goes on in the guess.
func TestAGuessIsWhatFollowedEarlier(t *testing.T) {
	for name, x := range map[string]struct {
		ids, want []int32
	}{
		"nothing repeats":    {[]int32{1, 2, 3, 4, 5, 6}, nil},
		"too short":          {[]int32{1, 2}, nil},
		"two ids agree":      {[]int32{1, 2, 3, 9, 2, 3}, nil},
		"three ids agree":    {[]int32{1, 2, 3, 7, 8, 9, 5, 1, 2, 3}, []int32{7, 8, 9, 5}},
		"the newest place":   {[]int32{1, 2, 3, 7, 0, 1, 2, 3, 8, 4, 1, 2, 3}, []int32{8, 4, 1, 2}},
		"within the guess":   {[]int32{5, 1, 2, 1, 2, 1}, []int32{2, 1, 2, 1}},
		"one id over and on": {[]int32{6, 6, 6, 6}, []int32{6, 6, 6, 6}},
	} {
		var d drafter
		if got := d.guess(x.ids, mostDraft, 1); !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
	var d drafter
	if got := d.guess([]int32{1, 2, 3, 7, 8, 9, 5, 1, 2, 3}, 2, 1); !slices.Equal(got, []int32{7, 8}) {
		t.Errorf("%v where two may come", got)
	}
}

// Ids that come back without what followed them: what is computed for nothing stays below the
// share that is allowed, for any number of neighbours.
func TestGuessesThatFailCostLittle(t *testing.T) {
	for beside := 1; beside <= mostDrafting; beside++ {
		random := rand.New(rand.NewPCG(1, uint64(beside)))
		var d drafter
		ids, cost := []int32{}, 0.0
		for n := range 3000 {
			g := d.guess(ids, mostDraft, beside)
			next := random.Int32N(3)
			right := 0
			for right < len(g) && g[right] == next {
				ids, next, right = append(ids, next), random.Int32N(3), right+1
			}
			d.took(len(g), right, beside)
			cost += draftCost*float64(len(g)*beside) - float64(right)
			ids = append(ids, next)
			if most := 1 + .02*float64(len(ids)) + 1e-9; cost > most {
				t.Fatalf("beside %d: %v tokens' time is lost after %d, %v is allowed", beside, cost, n, most)
			}
		}
	}
}

// A text that repeats itself is drawn in long guesses.
func TestARepeatedTextIsDrawnInLongGuesses(t *testing.T) {
	var d drafter
	var text, ids []int32
	for i := range int32(100) {
		text = append(text, i)
	}
	ids = slices.Concat(text, text[:3])
	steps := 0
	for len(ids) < 200 {
		g := d.guess(ids, mostDraft, 4)
		right := 0
		for right < len(g) && g[right] == int32(len(ids)%100) {
			ids, right = append(ids, g[right]), right+1
		}
		d.took(len(g), right, 4)
		ids = append(ids, int32(len(ids)%100))
		steps++
	}
	if steps > 15 {
		t.Errorf("97 tokens took %d steps", steps)
	}
}
