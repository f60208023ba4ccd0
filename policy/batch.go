package policy

// Batch is a set of sequences and, for each, which of its tokens are wanted:
// Want[i][j] asks for the log-prob of token j of sequence i given those before
// it. Token 0 has none.
type Batch struct {
	Sequences [][]int32
	Want      [][]bool
}

// rows lists, for the pack of the batch, the row that predicts each wanted
// token, and the token.
func (b Batch) rows() (pack *Pack, rows, targets []int32) {
	pack = NewPack(b.Sequences)
	for i, q := range b.Sequences {
		all := pack.Rows(i, 0, len(q))
		for j := 1; j < len(q); j++ {
			if b.Want[i][j] {
				rows, targets = append(rows, all[j-1]), append(targets, q[j])
			}
		}
	}
	return pack, rows, targets
}

// StepConfig are the settings of one optimiser step.
type StepConfig struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	MaxGradNorm                        float64 // 0: no clipping
	Number                             int     // of the step, from 1: for Adam's bias correction
}
