package remotetest

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

func TestNobodyRefusesAndItsPortIsTaken(t *testing.T) {
	address := Nobody(t)
	resp, err := http.Get(address)
	if err == nil {
		resp.Body.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	l, err := net.Listen("tcp", strings.TrimPrefix(address, "http://"))
	if err == nil {
		l.Close()
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("another server has the port: %v", err)
	}
}
