// Package trainer turns trajectory files into a better model. grpo.go shows the
// algorithm from top to bottom; rows.go reads the files, batch.go cuts a step
// into micro-batches, metrics go to the package metrics below it.
//
// It knows layers 0 to 3. It builds without libtorch: the model is behind the
// Actor interface, which policy.Trainable satisfies.
package trainer
