package parquet

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/traj"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
)

// The layout, version 2: version 1 with images. A message has its images as Hugging Face's
// datasets have them, bytes and path, and the word <image> in its content where they stand;
// image_refs says of each its number in the column images and the byte of its word, which
// another word of the text is not. A row has the bytes of an image in its messages, or in
// the column images where no message shows it. Both are encoded by dictionary: a row group
// has each file once. A crop has no bytes.

// imageWord stands in the content of a message for an image.
const imageWord = "<image>"

// Keys of the metadata that other readers look for.
const (
	keyHuggingFace = "huggingface"
	keyArrowSchema = "ARROW:schema"
)

// fileColumns are the leaf columns that hold the bytes of images.
var fileColumns = []string{"messages.list.element.images.list.element.bytes", "images.list.element.bytes"}

func imageType(file arrow.DataType) arrow.DataType {
	return arrow.StructOf(opt("hash", text), opt("path", text), opt("bytes", file), opt("width", i32), opt("height", i32),
		opt("source", text), opt("box", arrow.ListOf(i32)))
}

// columnsV2 are columns with images in them. What readers of Hugging Face's datasets are told
// to decode is nullable throughout: they know no other types.
func columnsV2(file arrow.DataType) []arrow.Field {
	call := arrow.StructOf(opt("id", text), opt("name", text), opt("arguments", text))
	message := arrow.StructOf(opt("role", text), opt("content", text), opt("reasoning", text), opt("name", text),
		opt("tool_call_id", text), opt("tool_calls", arrow.ListOf(call)),
		opt("images", arrow.ListOf(arrow.StructOf(opt("bytes", file), opt("path", text)))),
		opt("image_refs", arrow.ListOf(arrow.StructOf(opt("image", i32), opt("at", i32)))))
	span := arrow.StructOf(col("image", i32), col("start", i32), col("tokens", i32), col("grid", arrow.ListOfNonNullable(i32)))
	sequence := arrow.StructOf(append(sequenceType.Fields(), col("images", arrow.ListOfNonNullable(span)))...)
	all := make([]arrow.Field, len(columns))
	for i, f := range columns {
		switch f.Name {
		case "messages":
			f = opt(f.Name, arrow.ListOf(message))
		case "sequences":
			f.Type = arrow.ListOfNonNullable(sequence)
		}
		all[i] = f
	}
	return all
}

// imageProperties are those of the columns with bytes: not compressed a second time, and
// no smallest and largest value in the footer, where tokens would be.
func imageProperties() (all []parquet.WriterProperty) {
	for _, path := range fileColumns {
		all = append(all, parquet.WithCompressionFor(path, compress.Codecs.Uncompressed), parquet.WithStatsFor(path, false))
	}
	return all
}

// huggingFace are the features of a column for Hugging Face's datasets, so that they decode
// its images. Features are compared with the column's type, the order of fields included.
func huggingFace(column arrow.Field) string {
	return fmt.Sprintf(`{"info":{"features":{%q:%s}}}`, column.Name, feature(column.Type))
}

// feature is a type as datasets.Features writes it: a struct of bytes and path is an image.
func feature(t arrow.DataType) string {
	switch t := t.(type) {
	case *arrow.ListType:
		return `{"feature":` + feature(t.Elem()) + `,"_type":"List"}`
	case *arrow.StructType:
		if t.NumFields() == 2 && t.Field(0).Name == "bytes" && t.Field(1).Name == "path" {
			return `{"_type":"Image"}`
		}
		var fields []string
		for _, f := range t.Fields() {
			fields = append(fields, fmt.Sprintf("%q:%s", f.Name, feature(f.Type)))
		}
		return "{" + strings.Join(fields, ",") + "}"
	case *arrow.StringType:
		return `{"dtype":"string","_type":"Value"}`
	}
	return fmt.Sprintf(`{"dtype":%q,"_type":"Value"}`, t.Name())
}

// arrowSchemaText is the schema as arrow's writers keep it beside Parquet's.
func arrowSchemaText(schema *arrow.Schema) (string, error) {
	var b bytes.Buffer
	w := ipc.NewWriter(&b, ipc.WithSchema(schema))
	if err := w.Close(); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), nil
}

// checkImages reports what cannot be written.
func checkImages(t *traj.Trajectory) error {
	for i := range t.Messages {
		if len(t.Messages[i].Images) == 0 {
			continue
		}
		if _, err := t.Messages[i].Parts(); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		for k := range t.Messages[i].Images {
			if number(t, &t.Messages[i].Images[k]) < 0 {
				return fmt.Errorf("message %d has an image that is not in the trajectory's list", i)
			}
		}
	}
	for i := range t.Sequences {
		for _, s := range t.Sequences[i].Images {
			if s.Image >= len(t.Images) {
				return fmt.Errorf("sequence %d has image %d of %d", i, s.Image, len(t.Images))
			}
		}
	}
	return nil
}

// number is that of an image in the trajectory's list; -1: it is not there.
func number(t *traj.Trajectory, im *traj.Image) int {
	for i := range t.Images {
		if t.Images[i].Same(im) {
			return i
		}
	}
	return -1
}

// files are those of the images in a row group, each once. The builders have tokens in
// their place.
type files struct {
	tokens map[string]int // by hash
	files  [][]byte
}

// missing is how many bytes the files of a row add.
func (f *files) missing(t *traj.Trajectory) (n int64) {
	for i := range t.Images {
		if _, have := f.tokens[t.Images[i].Hash]; !have {
			n += int64(len(t.Images[i].Bytes))
		}
	}
	return n
}

// add takes the files of a row.
func (f *files) add(t *traj.Trajectory) {
	for i := range t.Images {
		im := &t.Images[i]
		if _, have := f.tokens[im.Hash]; !have && im.Bytes != nil {
			f.tokens[im.Hash] = len(f.files)
			f.files = append(f.files, im.Bytes)
		}
	}
}

func (f *files) clear() {
	clear(f.tokens)
	f.files = nil
}

// append puts the token of an image's file into a builder.
func (f *files) append(b array.Builder, im *traj.Image) {
	if token, have := f.tokens[im.Hash]; have && im.Bytes != nil {
		b.(*array.BinaryBuilder).Append(binary.LittleEndian.AppendUint32(nil, uint32(token)))
		return
	}
	b.AppendNull()
}

// markImages is a message's content with a word for each image, and where the words begin.
func markImages(m *traj.Message) (content string, at []int) {
	if len(m.Images) == 0 {
		return m.Content, nil
	}
	var b strings.Builder
	for i, s := range strings.Split(valid(m.Content), traj.ImageMark) {
		if i > 0 {
			at = append(at, b.Len())
			b.WriteString(imageWord)
		}
		b.WriteString(s)
	}
	return b.String(), at
}

func addMessageImages(sb *array.StructBuilder, t *traj.Trajectory, m *traj.Message, at []int, files *files) {
	ib := sb.FieldBuilder(6).(*array.ListBuilder)
	ib.Append(true)
	if files == nil {
		return
	}
	rb := sb.FieldBuilder(7).(*array.ListBuilder)
	rb.Append(true)
	s, ref := ib.ValueBuilder().(*array.StructBuilder), rb.ValueBuilder().(*array.StructBuilder)
	for i := range m.Images {
		im := &m.Images[i]
		ref.Append(true)
		addInt(ref.FieldBuilder(0), number(t, im))
		addInt(ref.FieldBuilder(1), at[i])
		if im.Crop != nil {
			s.AppendNull()
			continue
		}
		s.Append(true)
		files.append(s.FieldBuilder(0), im)
		addOptText(s.FieldBuilder(1), im.Path)
	}
}

func addImages(b array.Builder, t *traj.Trajectory, files *files) {
	lb := b.(*array.ListBuilder)
	lb.Append(true)
	sb := lb.ValueBuilder().(*array.StructBuilder)
	shown := map[string]bool{}
	for i := range t.Messages {
		for _, im := range t.Messages[i].Images {
			shown[im.Hash] = shown[im.Hash] || im.Bytes != nil
		}
	}
	for i := range t.Images {
		im := &t.Images[i]
		sb.Append(true)
		addText(sb.FieldBuilder(0), im.Hash)
		addOptText(sb.FieldBuilder(1), im.Path)
		if shown[im.Hash] {
			sb.FieldBuilder(2).AppendNull()
		} else {
			files.append(sb.FieldBuilder(2), im)
		}
		addInt(sb.FieldBuilder(3), im.Width)
		addInt(sb.FieldBuilder(4), im.Height)
		box := sb.FieldBuilder(6).(*array.ListBuilder)
		if im.Crop == nil {
			sb.FieldBuilder(5).AppendNull()
			box.AppendNull()
			continue
		}
		addText(sb.FieldBuilder(5), im.Crop.Source)
		box.Append(true)
		for _, v := range im.Crop.Box {
			addInt(box.ValueBuilder(), v)
		}
	}
}

func addSpans(b array.Builder, spans []traj.ImageSpan) {
	lb := b.(*array.ListBuilder)
	lb.Append(true)
	sb := lb.ValueBuilder().(*array.StructBuilder)
	for _, s := range spans {
		sb.Append(true)
		addInt(sb.FieldBuilder(0), s.Image)
		addInt(sb.FieldBuilder(1), s.Start)
		addInt(sb.FieldBuilder(2), s.Tokens)
		grid := sb.FieldBuilder(3).(*array.ListBuilder)
		grid.Append(true)
		for _, v := range s.Grid {
			addInt(grid.ValueBuilder(), v)
		}
	}
}

// imageRef is what a row of a file says of an image of a message.
type imageRef struct{ message, place, image, at int }

// imageLinks are what the columns of a row say of each other's images, until all are read.
type imageLinks struct{ refs []imageRef }

func decodeImages(n *node) ([]traj.Image, error) {
	return structs(n, func(f *node, im *traj.Image) (err error) {
		num := func(p *int) {
			var v *float64
			if v, err = f.optNumber(); v != nil {
				*p = int(*v)
			}
		}
		crop := func() *traj.Crop {
			if im.Crop == nil {
				im.Crop = &traj.Crop{}
			}
			return im.Crop
		}
		switch f.name {
		case "hash":
			im.Hash, _, err = f.text()
		case "path":
			im.Path, _, err = f.text()
		case "bytes":
			im.Bytes, err = f.blob()
		case "width":
			num(&im.Width)
		case "height":
			num(&im.Height)
		case "source":
			var s *string
			if s, err = f.optText(); s != nil {
				crop().Source = *s
			}
		case "box":
			var box []int32
			if box, err = f.ids(); box == nil || err != nil {
				return err
			}
			if len(box) != 4 {
				return malformed.Field("box", malformed.Mismatch, "it has %d numbers, not 4", len(box))
			}
			for i, v := range box {
				crop().Box[i] = int(v)
			}
		default:
			_, err = f.value()
		}
		return err
	})
}

func decodeSpans(n *node) ([]traj.ImageSpan, error) {
	return structs(n, func(f *node, s *traj.ImageSpan) (err error) {
		num := func(p *int) {
			var v int64
			v, err = f.integer()
			*p = int(v)
		}
		switch f.name {
		case "image":
			num(&s.Image)
		case "start":
			num(&s.Start)
		case "tokens":
			num(&s.Tokens)
		case "grid":
			var grid []int32
			if grid, err = f.ids(); err == nil && len(grid) != len(s.Grid) {
				err = malformed.Field("grid", malformed.Mismatch, "it has %d numbers, not %d", len(grid), len(s.Grid))
			}
			for i := range grid {
				if i < len(s.Grid) {
					s.Grid[i] = int(grid[i])
				}
			}
		default:
			_, err = f.value()
		}
		return err
	})
}

// join puts what the columns of a row say of its images together: the messages get those of
// the trajectory's list, the list the bytes that the messages have.
func (l *imageLinks) join(t *traj.Trajectory, files *folderReader) error {
	if l.refs == nil {
		markBare(t)
	}
	for _, r := range l.refs {
		if r.image < 0 || r.image >= len(t.Images) {
			return malformed.Field("column messages", malformed.Range, "message %d has image %d of %d", r.message, r.image, len(t.Images))
		}
		if m := &t.Messages[r.message]; r.place < len(m.Images) && t.Images[r.image].Bytes == nil {
			t.Images[r.image].Bytes = m.Images[r.place].Bytes
		}
	}
	if err := files.load(t); err != nil {
		return &malformed.Error{Field: "column images", Err: err}
	}
	for i := range t.Images {
		if err := checkFile(t, i); err != nil {
			return &malformed.Error{Field: "column images", Err: err}
		}
	}
	for i := range t.Messages {
		if l.refs == nil {
			break
		}
		if err := l.place(t, i); err != nil {
			return malformed.Field("column messages", "", "message %d: %w", i, err)
		}
	}
	for i := range t.Sequences {
		for _, s := range t.Sequences[i].Images {
			if s.Image >= len(t.Images) {
				return malformed.Field("column sequences", malformed.Range, "number %d has image %d of %d", i, s.Image, len(t.Images))
			}
		}
	}
	return nil
}

// checkFile holds image i of a row against its hash, or gives a crop its file.
func checkFile(t *traj.Trajectory, i int) error {
	im := &t.Images[i]
	if im.Crop == nil {
		if im.Bytes == nil || im.Hash == "" {
			return nil
		}
		if hash := hashOf(im.Bytes); hash != im.Hash {
			return malformed.Errorf(malformed.Mismatch, "number %d has the hash %.12s…, its bytes %.12s…: the file was changed", i, im.Hash, hash)
		}
		return nil
	}
	for k := range t.Images {
		if file := &t.Images[k]; file.Crop == nil && file.Hash == im.Crop.Source {
			im.Crop.File = file.Bytes
		}
	}
	return nil
}

// place gives message i of a row its images in their places.
func (l *imageLinks) place(t *traj.Trajectory, i int) error {
	m := &t.Messages[i]
	var images []traj.Image
	var b strings.Builder
	done := 0
	for _, r := range l.refs {
		if r.message != i {
			continue
		}
		if r.at < done || r.at+len(imageWord) > len(m.Content) || m.Content[r.at:r.at+len(imageWord)] != imageWord {
			return malformed.Errorf(malformed.Mismatch, "its content has no %s at byte %d", imageWord, r.at)
		}
		b.WriteString(traj.PlainText(m.Content[done:r.at]))
		b.WriteString(traj.ImageMark)
		done = r.at + len(imageWord)
		images = append(images, t.Images[r.image])
	}
	if images != nil {
		m.Content = b.String() + traj.PlainText(m.Content[done:])
	}
	m.Images = images
	return nil
}

// markBare gives images of another program's file their places: where the content has the
// word for each, else in front of it.
func markBare(t *traj.Trajectory) {
	for i := range t.Messages {
		m := &t.Messages[i]
		n := len(m.Images)
		if n == 0 {
			continue
		}
		m.Content = traj.PlainText(m.Content)
		if strings.Count(m.Content, imageWord) == n {
			m.Content = strings.ReplaceAll(m.Content, imageWord, traj.ImageMark)
		} else {
			m.Content = strings.Repeat(traj.ImageMark, n) + m.Content
		}
		for k := range m.Images {
			if im := &m.Images[k]; im.Bytes != nil {
				im.Hash = hashOf(im.Bytes)
			}
		}
		t.AddImages(t.Messages[i : i+1])
	}
}
