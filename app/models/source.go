package models

import (
	"crypto/sha256"
	"encoding/hex"
)

// Source is what a run's file says about its model.
type Source struct {
	Name          string    `json:"name"`
	Kind          string    `json:"kind"` // local or server
	BaseURL       Addresses `json:"base_url,omitempty"`
	Version       int64     `json:"version,omitempty"`
	Fingerprint   string    `json:"fingerprint,omitempty"` // of the weights
	DType         string    `json:"dtype,omitempty"`       // of a local model
	TokenMode     string    `json:"token_mode,omitempty"`  // of a server, unless chat
	TokenizerHash string    `json:"tokenizer_hash,omitempty"`
	TemplateHash  string    `json:"template_hash,omitempty"`
	Logprobs      string    `json:"logprobs,omitempty"` // what the log-probs are of
}

// HashText is the SHA-256 of a chat template.
func HashText(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
