// Package dotenv reads a .env file into the environment.
package dotenv

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/joho/godotenv"
)

// Load puts the variables of a .env file into the environment, where it has
// none of that name; a missing file is no error. An error never has anything of
// the file's text: all of it may be keys.
func Load(path string) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		var named *fs.PathError
		if errors.As(err, &named) {
			err = named.Err
		}
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	values, err := godotenv.UnmarshalBytes(b)
	if err != nil {
		return fmt.Errorf("%s: line %d is not of the form NAME=VALUE; the file is left unread", path, wrongLine(b))
	}
	for name, value := range values {
		if _, ok := os.LookupEnv(name); ok {
			continue
		}
		if os.Setenv(name, value) != nil {
			return fmt.Errorf("%s: a variable has a name or a value that the system does not take", path)
		}
	}
	return nil
}

// longestValue is how many lines a value in quotes may have, for wrongLine: files are often wrong at
// a quote that nothing ends.
const longestValue = 500

// wrongLine is the number of the first line that cannot be read, alone or with lines behind it.
func wrongLine(b []byte) int {
	lines := bytes.SplitAfter(b, []byte("\n"))
	for n := 0; n < len(lines); {
		size := 1
		for ; ; size++ {
			if size > longestValue || n+size > len(lines) {
				return n + 1
			}
			if _, err := godotenv.UnmarshalBytes(bytes.Join(lines[n:n+size], nil)); err == nil {
				break
			}
		}
		n += size
	}
	return len(lines)
}
