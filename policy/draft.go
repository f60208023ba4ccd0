package policy

// drafter guesses what a sequence says next from what stands in it: where the last three ids
// stand earlier, what followed them there (prompt lookup, as in Saxena 2023 and vLLM's n-gram
// drafts). A step computes the guess together with the last token. What is drawn for a position
// depends on the seed and the position alone, so drawing says how much of the guess holds, and
// tokens and log-probs are those of a run without.
//
// Rows that are computed for nothing cost time. They are paid from what drafts have won, and
// from a fiftieth of the tokens drawn: a text that repeats nothing takes 2 % longer at most.
type drafter struct {
	after map[[draftKey]int32]int32 // the newest place behind three ids
	known int                       // ids whose places are in after
	reach int                       // of the next guess
	saved float64                   // tokens that drafts have won, less what their rows cost
	drawn int                       // tokens
}

const (
	draftKey   = 3  // ids that must agree
	firstDraft = 4  // ids of the first guess
	mostDraft  = 15 // ids of a guess: with the last token, what a step reads a context for once (attend_plan.h)
	// A row more costs a share of a step: .05 to .09 were measured on a Zen 4 with SmolLM2, from
	// one to 32 rows.
	draftCost = .09
	// More sequences than these leave too little of the weights' reading time for rows that may
	// be for nothing.
	mostDrafting = 8
)

// guess is what may follow ids, at most `most` of them; nil: nothing is to be tried. Beside is the
// number of sequences that the step decodes.
func (d *drafter) guess(ids []int32, most, beside int) []int32 {
	if d.reach == 0 {
		d.reach, d.after = firstDraft, map[[draftKey]int32]int32{}
	}
	for d.known = max(d.known, draftKey); d.known < len(ids); d.known++ {
		d.after[[draftKey]int32(ids[d.known-draftKey:d.known])] = int32(d.known)
	}
	if len(ids) < draftKey {
		return nil
	}
	from, ok := d.after[[draftKey]int32(ids[len(ids)-draftKey:])]
	if !ok {
		return nil
	}
	n := min(d.reach, most)
	if can := (d.saved + 1 + .02*float64(d.drawn)) / (draftCost * float64(beside)); can < float64(n) {
		n = int(can)
	}
	if n <= 0 {
		return nil
	}
	out := make([]int32, n)
	for i := range out { // a text that repeats itself goes on in the guess
		if at := int(from) + i; at < len(ids) {
			out[i] = ids[at]
		} else {
			out[i] = out[at-len(ids)]
		}
	}
	return out
}

// took takes in that the first `right` of a guess of n ids held, in a step of `beside` sequences.
func (d *drafter) took(n, right, beside int) {
	d.drawn += 1 + right
	if n == 0 {
		return
	}
	d.saved += float64(right) - draftCost*float64(n*beside)
	if right == n {
		d.reach = min(2*d.reach, mostDraft)
	} else {
		d.reach = max(right+1, 2)
	}
}
