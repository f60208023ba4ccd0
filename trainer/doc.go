// Package trainer turns trajectory files into a better model. grpo.go shows an
// algorithm from top to bottom; rows.go reads the files, the package store keeps
// the rows and cuts a step into micro-batches, and the package metrics writes what
// is measured.
//
// It knows layers 0 to 3. It builds without libtorch: the model is behind the
// Actor interface, which policy.Trainable satisfies.
package trainer
