//go:build !unix

package rundir

func freeBytes(string) int64 { return -1 }

// otherOwner knows no owners here.
func otherOwner(string) (string, bool) { return "", false }
