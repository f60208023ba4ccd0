//go:build libtorch

package policy

import (
	"fmt"

	"agentcli/internal/torch"
)

// see gives the work of a step the features of the images whose tokens it computes, and the
// sequences whose images cannot be had, which are not in the plan any more.
func (sc *scheduler) see(s *torch.Scope, plan []work) (kept []work, failed map[*sequence]error) {
	sc.p.features.trim()
	for _, w := range plan {
		for k, img := range w.seq.images {
			if img.Start >= w.to || img.end() <= w.from {
				continue
			}
			f, err := sc.p.features.of(s, sc.p.net, img)
			if err != nil {
				if failed == nil {
					failed = map[*sequence]error{}
				}
				failed[w.seq] = fmt.Errorf("image %d: %w", k+1, err)
				break
			}
			if w.seen == nil {
				w.seen = make([]features, len(w.seq.images))
			}
			w.seen[k] = f
		}
		if failed[w.seq] == nil {
			kept = append(kept, w)
		}
	}
	return kept, failed
}

// add appends the tokens of a part of a sequence. Three positions are kept apart only where
// one of the step's tokens is of an image.
func (in *input) add(w work) {
	row := len(in.ids)
	in.ids = append(append(in.ids, w.seq.ids[w.from:w.to]...), w.draft...)
	end := w.to + len(w.draft)
	for i := w.from; i < end; i++ {
		p := int32(i) + w.seq.shift
		if i < len(w.seq.at[0]) {
			p = w.seq.at[0][i]
		}
		in.positions[0] = append(in.positions[0], p)
	}
	if in.positions[1] == nil && w.seen != nil {
		in.positions[1], in.positions[2] = append([]int32{}, in.positions[0][:row]...), append([]int32{}, in.positions[0][:row]...)
	}
	if in.positions[1] == nil {
		return
	}
	for i := w.from; i < end; i++ {
		r, c := in.positions[0][row+i-w.from], in.positions[0][row+i-w.from]
		if i < len(w.seq.at[1]) {
			r, c = w.seq.at[1][i], w.seq.at[2][i]
		}
		in.positions[1], in.positions[2] = append(in.positions[1], r), append(in.positions[2], c)
	}
	for k, f := range w.seen {
		if img := w.seq.images[k]; f.main.Defined() {
			from, to := max(img.Start, w.from), min(img.end(), w.to)
			in.images = append(in.images, placed{f, row + from - w.from, from - img.Start, to - img.Start})
		}
	}
}
