package main

import (
	"errors"
	"testing"

	"agentcli/app/models"
)

// noModels is a backend of a test in which no model is to be opened.
type noModels struct {
	models.NoBackend
	t *testing.T
}

func (b noModels) Available() error { return nil }

func (b noModels) OpenTrainable(string, models.TrainableOptions) (models.Trainable, error) {
	b.t.Error("a model was opened")
	return nil, errors.New("opened")
}
