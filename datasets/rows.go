package datasets

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"agentcli/internal/malformed"
	"agentcli/parquet"
)

// Row is one row of a file, as ReadRows gives it: values are nil, bool,
// json.Number, string, []any, map[string]any, and for Parquet also int64,
// uint64, float64, []byte and time.Time.
type Row struct {
	Number int // from 1, as an editor counts the lines or records
	Fields map[string]any
	fault  error // why the row cannot be read, while those behind it can
}

// maxLine bounds one line of a .jsonl file: longer ones are no dataset.
const maxLine = 256 << 20

// ReadRows streams the rows of a .jsonl, .json, .csv or .parquet file, all but the last
// also with .gz or .zst; the ending decides, and a .json file of one object a line is read as such. The
// stream ends after the first error, which names the file and the row.
// Numbers keep the digits that the file has.
func ReadRows(ctx context.Context, path string) iter.Seq2[Row, error] {
	return untilError(eachRow(ctx, path))
}

// untilError ends rows behind the first error.
func untilError(rows iter.Seq2[Row, error]) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for row, err := range rows {
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// eachRow is ReadRows that goes on behind an error where the file has more rows.
func eachRow(ctx context.Context, path string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		var read func(context.Context, string, func(Row) bool) error
		format, packed := formatOf(path)
		if format == ".parquet" && packed != "" {
			yield(Row{}, fmt.Errorf("%s: a Parquet file is read from its end, so it cannot be compressed as a whole; unpack it", path))
			return
		}
		switch format {
		case ".parquet":
			read = readParquet
		case ".csv":
			read = readCSV
		case ".json":
			read = readJSON
		case ".jsonl", ".ndjson":
			read = readLines
		default:
			if _, err := os.Stat(path); err != nil {
				yield(Row{}, err)
				return
			}
			yield(Row{}, fmt.Errorf("%s: cannot tell what it is by its name; want .parquet, or .jsonl, .json or .csv, also with .gz or .zst",
				path))
			return
		}
		if err := read(ctx, path, func(r Row) bool { return yieldRow(r, yield) }); err != nil {
			yield(Row{}, err)
		}
	}
}

// yieldRow gives a row, or its fault.
func yieldRow(r Row, yield func(Row, error) bool) bool {
	if r.fault != nil {
		return yield(Row{}, r.fault)
	}
	return yield(r, nil)
}

var bom = []byte("\xef\xbb\xbf")

func readLines(ctx context.Context, path string, yield func(Row) bool) error {
	f, err := openText(ctx, path)
	if err != nil {
		return err
	}
	defer f.Close()
	return lines(ctx, path, f, yield)
}

func lines(ctx context.Context, path string, r io.Reader, yield func(Row) bool) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), maxLine)
	n := 0
	for sc.Scan() {
		n++
		if err := sc.Err(); err != nil { // of reading: the line is a part of one
			return atRow(path, n, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		line := sc.Bytes()
		if n == 1 {
			line = bytes.TrimPrefix(line, bom)
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		m, err := object(line)
		if !utf8.Valid(line) {
			err = errNotText
		}
		row := Row{Number: n, Fields: m}
		if err != nil {
			row.fault = atRow(path, n, err)
		}
		if !yield(row) {
			return nil
		}
	}
	if err := sc.Err(); err != nil {
		return atRow(path, n+1, err)
	}
	return nil
}

// errNotText is a fault of Syntax that is told from others.
var errNotText = malformed.Errorf(malformed.Syntax, "is not UTF-8 text; save the file as UTF-8")

// atRow is a fault of a row.
func atRow(path string, row int, err error) error {
	return &malformed.Error{Path: path, Row: row, Err: err}
}

// textOnly passes UTF-8 on and ends with errNotText at the first byte that is
// none: package json would put U+FFFD in its place.
type textOnly struct {
	r    io.Reader
	rest []byte // of a character that the next read ends
	err  error
}

func (t *textOnly) Read(p []byte) (int, error) {
	if t.err != nil {
		return 0, t.err
	}
	n, err := t.r.Read(p)
	b := append(t.rest, p[:n]...)
	for len(b) > 0 {
		if !utf8.FullRune(b) && err == nil {
			break
		}
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			t.err = errNotText
			return 0, t.err
		}
		b = b[size:]
	}
	t.rest, t.err = append(t.rest[:0], b...), err
	return n, err
}

// object decodes one JSON object, with numbers as text.
func object(b []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, notJSON(err)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, malformed.Errorf(malformed.Type, "is not a JSON object: %.40s", b)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, malformed.Errorf(malformed.Syntax, "has something after the JSON object")
	}
	return m, nil
}

// notJSON is the fault of a text that a JSON decoder refuses.
func notJSON(err error) error {
	kind := malformed.Syntax
	var wrong *json.UnmarshalTypeError
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		kind = malformed.Truncated
	} else if errors.As(err, &wrong) {
		kind = malformed.Type
	}
	return malformed.Errorf(kind, "is not JSON: %w", plain(err))
}

func plain(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends too early")
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Errorf("it is a %s", strings.Fields(kind.Value)[0])
	}
	return err
}

// readJSON reads an array of objects, an object that holds one such array, or
// one object a line.
func readJSON(ctx context.Context, path string, yield func(Row) bool) error {
	f, err := openText(ctx, path)
	if err != nil {
		return err
	}
	defer f.Close()
	br := bufio.NewReaderSize(f, 64<<10)
	if b, _ := br.Peek(3); bytes.Equal(b, bom) {
		_, _ = br.Discard(3)
	}
	first, err := firstByte(br)
	if err != nil {
		return malformed.At(path, "", malformed.Missing, "is empty")
	}
	d := json.NewDecoder(&textOnly{r: br})
	d.UseNumber()
	if first == '{' {
		// One object: rows if it is the first of several, else a wrapper.
		var m map[string]any
		if err := d.Decode(&m); err != nil {
			return atRow(path, 1, notJSON(err))
		}
		if !d.More() {
			for _, k := range []string{"data", "rows", "examples", "instances"} {
				if list, ok := m[k].([]any); ok {
					return elements(ctx, path, list, yield)
				}
			}
		}
		for n := 1; ; n++ {
			if err := ctx.Err(); err != nil {
				return err
			}
			if !yield(Row{Number: n, Fields: m}) || !d.More() {
				return nil
			}
			m = nil
			if err := d.Decode(&m); err != nil {
				return atRow(path, n+1, malformed.Errorf(malformed.Type, "is not a JSON object: %w", plain(err)))
			}
		}
	}
	if first != '[' {
		return malformed.At(path, "", malformed.Type, "want a JSON array of objects, or one object a line")
	}
	if _, err := d.Token(); err != nil {
		return &malformed.Error{Path: path, Err: notJSON(err)}
	}
	n := 0
	for d.More() {
		n++
		if err := ctx.Err(); err != nil {
			return err
		}
		var v any
		if err := d.Decode(&v); err != nil {
			return atRow(path, n, notJSON(err))
		}
		if !yield(element(path, n, v)) {
			return nil
		}
	}
	if _, err := d.Token(); err != nil {
		return atRow(path, n+1, notJSON(err))
	}
	return nil
}

func firstByte(br *bufio.Reader) (byte, error) {
	for {
		b, err := br.ReadByte()
		if err != nil {
			return 0, err
		}
		if b != ' ' && b != '\n' && b != '\r' && b != '\t' {
			return b, br.UnreadByte()
		}
	}
}

func elements(ctx context.Context, path string, list []any, yield func(Row) bool) error {
	for i, v := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !yield(element(path, i+1, v)) {
			return nil
		}
	}
	return nil
}

// element is row n of a JSON array.
func element(path string, n int, v any) Row {
	if m, ok := v.(map[string]any); ok {
		return Row{Number: n, Fields: m}
	}
	return Row{Number: n, fault: atRow(path, n, malformed.Errorf(malformed.Type, "is not a JSON object"))}
}

func readCSV(ctx context.Context, path string, yield func(Row) bool) error {
	f, err := openText(ctx, path)
	if err != nil {
		return err
	}
	defer f.Close()
	br := bufio.NewReader(f)
	if b, _ := br.Peek(3); bytes.Equal(b, bom) {
		_, _ = br.Discard(3)
	}
	r := csv.NewReader(br)
	header, err := r.Read()
	if err != nil {
		return malformed.At(path, "", malformed.Missing, "has no header line")
	}
	if other := otherSeparator(header); other != "" {
		return malformed.At(path, "", malformed.Syntax, "its columns are separated by %s; save it with commas", other)
	}
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		rec, err := r.Read()
		if err == io.EOF {
			return nil
		}
		var pe *csv.ParseError
		if err != nil && !errors.As(err, &pe) {
			return atRow(path, n, err)
		}
		row := Row{Number: n}
		switch {
		case errors.Is(err, csv.ErrFieldCount):
			row.fault = &malformed.Error{Path: path, Row: n, Line: pe.Line, Err: malformed.Errorf(malformed.Mismatch,
				"has %s, and the header %d (commas in a text want quotes around it)", columns(len(rec)), len(header))}
		case err != nil:
			row.fault = &malformed.Error{Path: path, Row: n, Line: pe.Line, Kind: malformed.Syntax, Err: pe.Err}
		case slices.ContainsFunc(rec, func(s string) bool { return !utf8.ValidString(s) }):
			row.fault = atRow(path, n, errNotText)
		default:
			row.Fields = make(map[string]any, len(header))
			for i, h := range header {
				row.Fields[strings.TrimSpace(h)] = rec[i]
			}
		}
		if !yield(row) {
			return nil
		}
	}
}

// otherSeparator names what the columns of a file are separated by, by its header line; "":
// commas, or there is one column.
func otherSeparator(header []string) string {
	if len(header) == 1 {
		for separator, name := range map[string]string{";": "semicolons", "\t": "tabs", "|": "bars (|)"} {
			if strings.Contains(header[0], separator) {
				return name
			}
		}
	}
	return ""
}

// noTrajectories refuses a file of trajectories as a source of tasks: its
// messages hold the old replies.
func noTrajectories(path string) error {
	if !strings.EqualFold(filepath.Ext(path), ".parquet") {
		return nil
	}
	t, err := parquet.OpenTable(path)
	if err != nil {
		return nil // whoever reads it will say so
	}
	defer t.Close()
	if _, ok := t.Value(parquet.KeySchema); ok {
		return &TrajectoriesError{Path: path}
	}
	return nil
}

func columns(n int) string {
	if n == 1 {
		return "1 column"
	}
	return fmt.Sprintf("%d columns", n)
}

// ReadLines streams the rows of JSON lines that name tells of.
func ReadLines(ctx context.Context, name string, r io.Reader) iter.Seq2[Row, error] {
	return untilError(func(yield func(Row, error) bool) {
		if err := lines(ctx, name, r, func(r Row) bool { return yieldRow(r, yield) }); err != nil {
			yield(Row{}, err)
		}
	})
}

func readParquet(ctx context.Context, path string, yield func(Row) bool) error {
	t, err := parquet.OpenTable(path)
	if err != nil {
		return err
	}
	defer t.Close()
	n := 0
	for m, err := range t.Rows(ctx) {
		if err != nil {
			return err
		}
		n++
		if !yield(Row{Number: n, Fields: m}) {
			return nil
		}
	}
	return nil
}
