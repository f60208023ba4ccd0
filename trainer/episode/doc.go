// Package episode has the trainer's form of a trajectory: an Episode, the TokenStream of
// each of its sequences, and the TokenSelection that says which tokens are trained on. It
// knows no algorithm, no model and no file. It imports traj and policy's plain types only.
package episode
