// Package models opens the model that a name stands for: a folder in the Hugging Face
// layout, a .gguf, org/name on the hub, or the address of a server (URL or URL#MODEL).
// It is layer 5, beside app/rundir and below what runs models.
package models
