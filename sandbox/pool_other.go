//go:build !linux

package sandbox

import (
	"context"
	"fmt"
)

// Pool exists on Linux only.
type Pool struct{}

// Proc exists on Linux only.
type Proc struct{}

// Open fails: namespaces, Landlock and seccomp are Linux's.
func Open(context.Context, Config) (*Pool, error) {
	return nil, fmt.Errorf("%w: it exists on Linux only", ErrRefused)
}

// Run fails.
func (p *Pool) Run(context.Context, string) (Result, error) { return Result{}, ErrClosed }

// Start fails.
func (p *Pool) Start(context.Context) (*Proc, error) { return nil, ErrClosed }

// Parts says which parts hold: none.
func (p *Pool) Parts() []Held { return nil }

// Hidden says nothing.
func (p *Pool) Hidden() []string { return nil }

// Isolated is false.
func (p *Pool) Isolated() bool { return false }

// Python says nothing.
func (p *Pool) Python() (string, []string) { return "", nil }

// Probe fails.
func (p *Pool) Probe(context.Context) ([]Outcome, error) { return nil, ErrClosed }

// Close does nothing.
func (p *Pool) Close() error { return nil }

// Run fails.
func (c *Proc) Run(context.Context, string) (Result, error) { return Result{}, ErrClosed }

// Alive is false.
func (c *Proc) Alive() bool { return false }

// Close does nothing.
func (c *Proc) Close() {}
