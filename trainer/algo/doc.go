// Package algo holds the formulas of the trainer as plain float64 functions:
// advantages, policy losses, KL estimates, aggregation. The standard library
// only; no tensors, no files. Axis suffixes: _G one number for each member of a
// group, _T one for each token.
//
// A loss gives, beside its value, its derivative with respect to each token's
// log-prob: the trainer hands that vector to backward, so the code that is
// tested against golden numbers is the code that trains.
package algo
