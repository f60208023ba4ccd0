// Package lossscale says what the parts of a reply weigh in the loss: the loss scale of
// ms-swift (package swift/loss_scale, version 4.6). A rule cuts a reply's text into pieces
// with weights. The weights of pieces become weights of the tokens that were sampled, by
// the bytes that each token stands for; no text is encoded anew.
//
// A loss scale is written
//
//	[default|last_round|all][+RULE…]
//
// Split takes its strategy off, Open reads its rules. Several rules are applied one after
// the other: each cuts the pieces that the one before made, as texts of their own, and the
// weights are multiplied.
//
// It is in layer 1: of this module it imports traj and internal only.
package lossscale
