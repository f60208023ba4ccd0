//go:build !amd64

package jpeg

func twiceBothVector(_, _, _ []byte) int { return 1 }

func toRGBVector(_, _, _, _ []byte) int { return 0 }
