package splitmix

import "testing"

// The first numbers for seed 1234567, of the reference implementation
// (prng.di.unimi.it/splitmix64.c).
func TestNextEqualsTheReference(t *testing.T) {
	x := uint64(1234567)
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		if got := Next(x); got != want {
			t.Errorf("number %d is %d, want %d", i, got, want)
		}
		x += Gamma
	}
}
