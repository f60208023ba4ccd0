//go:build !unix

package rundir

// FreeBytes is not known here.
func FreeBytes(string) int64 { return -1 }

// otherOwner knows no owners here.
func otherOwner(string) (string, bool) { return "", false }
