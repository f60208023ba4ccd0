// Package lib is measured by a test.
package lib

type Wide interface {
	A()
	B()
}

type Big[T any] struct{}

func (b *Big[T]) One()     {}
func (Big[T]) Two() string { return "set --limit N, or --other" }
