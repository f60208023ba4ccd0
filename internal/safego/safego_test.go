package safego

import (
	"errors"
	"io"
	"testing"
)

func TestAPanicBecomesAnError(t *testing.T) {
	into := func(v any) (err error) {
		defer Into(&err)
		panic(v)
	}
	var p *Panic
	if err := into("boom"); !errors.As(err, &p) || p.Value != "boom" || len(p.Stack) == 0 {
		t.Error(err)
	}
	if err := into(io.ErrUnexpectedEOF); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	var got error
	func() {
		defer Catch(func(err error) { got = err })
		panic("boom")
	}()
	func() {
		defer Catch(nil)
		panic("boom")
	}()
	if !errors.As(got, &p) {
		t.Error(got)
	}
}
