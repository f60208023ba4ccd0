//go:build !unix

package filesys

import "os"

func lock(*os.File) error { return nil }
