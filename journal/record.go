package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"strconv"

	"agentcli/traj"

	"github.com/klauspost/compress/zstd"
)

// A file of version 2 is a sequence of records:
//
//	magic    4 bytes  8a 61 6a 32
//	length   4 bytes  of the body, little endian; 0 is invalid
//	sequence 8 bytes  1, 2, 3, …: a missing number is a lost record
//	CRC-32C  4 bytes  over length, sequence and body
//	body
//
// The body's first byte is its kind. A header ('H') goes on with JSON. A
// trajectory ('T') goes on with what the index needs (attempt, prompt tokens,
// completion tokens as uvarints; termination and id as uvarint length and
// bytes; hash of the task, 8 bytes) and then the trajectory's JSON as one zstd
// frame, compressed where it is long. One with images ('V') has their number, a uvarint, and
// the SHA-256 hashes of their files behind its kind; the JSON has no files. A file ('I') is its hash and its
// bytes; its record stands before those of the trajectories that have it.
//
// The header is the first record and the second. Further copies follow after 4, 8, 16
// and 32 records, after every headerEvery records, and before the first record of a
// resumed run: one damaged place, a disk's block for example, never takes all copies.
//
// A file of version 1 is a sequence of: length and CRC-32C of the payload (4
// bytes each), payload. The payload is JSON: the header first, then a
// trajectory each.
const (
	version     = 2
	maxRecord   = 1 << 30 // bytes of a body
	headerEvery = 64

	kindHeader     = 'H'
	kindTrajectory = 'T'
	kindLooking    = 'V' // a trajectory with images
	kindImage      = 'I'
)

var (
	magic      = []byte{0x8a, 'a', 'j', '2'}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

const (
	headV1 = 8
	headV2 = 20
)

// entry is what the index needs to know of a trajectory's record.
type entry struct {
	id          string
	attempt     int
	termination traj.Termination
	in, out     int64  // tokens of all its prompts and replies
	task        uint64 // hash of what was asked
	images      []imageHash
}

func entryOf(t *traj.Trajectory) entry {
	e := entry{id: t.ID, attempt: t.Attempt, termination: t.Termination, task: taskHash(&t.Task)}
	for _, one := range append([]*traj.Trajectory{t}, t.Branches...) {
		for i := range one.Steps {
			e.in += int64(one.Steps[i].PromptTokens)
			e.out += int64(one.Steps[i].CompletionTokens)
		}
	}
	return e
}

// taskHash is the FNV-1a hash of everything in a task.
func taskHash(t *traj.Task) uint64 {
	h := fnv.New64a()
	var b []byte
	text := func(s string) {
		b = append(binary.LittleEndian.AppendUint64(b[:0], uint64(len(s))), s...)
		_, _ = h.Write(b)
	}
	list := func(all []string) {
		text(strconv.Itoa(len(all)))
		for _, s := range all {
			text(s)
		}
	}
	for _, s := range []string{t.ID, t.Dataset, t.Split, t.Question, t.Env, t.Reward, string(t.Meta)} {
		text(s)
	}
	list(t.Answers)
	list(t.Tools)
	for i := range t.Messages {
		m := &t.Messages[i]
		for _, s := range []string{m.Role, m.Content, m.Reasoning, m.Name, m.ToolCallID} {
			text(s)
		}
		for _, c := range m.ToolCalls {
			list([]string{c.ID, c.Name, c.Arguments})
		}
		for _, p := range m.Images {
			if p.Hash != "" {
				list([]string{p.Path, p.Hash})
			} else {
				list([]string{p.Path, string(p.Bytes)})
			}
		}
	}
	return h.Sum64()
}

// record is one whole record of a file.
type record struct {
	at, end int64 // its first byte, and the byte behind it
	seq     uint64
	body    []byte // valid until the next one is read
}

// seal puts sequence number and checksum into a record made by newRecord.
func seal(rec []byte, seq uint64) {
	binary.LittleEndian.PutUint64(rec[8:], seq)
	binary.LittleEndian.PutUint32(rec[16:], checksumV2(rec[4:16], rec[headV2:]))
}

func checksumV2(head, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body)
}

// newRecord is room for a record's head, and the body's kind.
func newRecord(kind byte, capacity int) []byte {
	rec := make([]byte, headV2, headV2+1+capacity)
	copy(rec, magic)
	return append(rec, kind)
}

// finish writes the body's length.
func finish(rec []byte) ([]byte, error) {
	if n := len(rec) - headV2; n > maxRecord {
		return nil, fmt.Errorf("a record of %d bytes is too long for the journal", n)
	}
	binary.LittleEndian.PutUint32(rec[4:], uint32(len(rec)-headV2))
	return rec, nil
}

// headerDue reports whether a copy of the header follows after so many records.
func headerDue(seq uint64) bool {
	return seq >= 4 && seq&(seq-1) == 0 || seq > 0 && seq%headerEvery == 0
}

func headerRecord(h Header) ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	return finish(append(newRecord(kindHeader, len(text)), text...))
}

func trajectoryRecord(e entry, text []byte, z *zstd.Encoder) ([]byte, error) {
	if len(text) > maxRecord { // its record may be shorter, and could not be read
		return nil, fmt.Errorf("a trajectory of %d bytes is too long for the journal", len(text))
	}
	rec := newRecord(kindTrajectory, 96+len(e.id)+max(len(text)/3, min(len(text), compressFrom))+sha256.Size*len(e.images))
	if e.images != nil {
		rec[headV2] = kindLooking
		rec = binary.AppendUvarint(rec, uint64(len(e.images)))
		for _, h := range e.images {
			rec = append(rec, h[:]...)
		}
	}
	rec = binary.AppendUvarint(rec, uint64(e.attempt))
	rec = binary.AppendUvarint(rec, uint64(e.in))
	rec = binary.AppendUvarint(rec, uint64(e.out))
	rec = appendString(rec, string(e.termination))
	rec = appendString(rec, e.id)
	rec = binary.LittleEndian.AppendUint64(rec, e.task)
	return finish(appendFrame(rec, text, z))
}

// compressFrom is the length in bytes from which a trajectory's JSON is compressed. A shorter
// one takes a block of the disk, and longer to compress than all else that the journal does.
const compressFrom = 4096

// appendFrame appends a text as a zstd frame (RFC 8878, section 3.1.1). One that is not
// compressed has its size in four bytes and one raw block.
func appendFrame(rec, text []byte, z *zstd.Encoder) []byte {
	if len(text) >= compressFrom {
		return z.EncodeAll(text, rec)
	}
	const sizeIn4BytesOneSegment, lastBlockRaw = 0xa0, 1
	rec = append(rec, 0x28, 0xb5, 0x2f, 0xfd, sizeIn4BytesOneSegment)
	rec = binary.LittleEndian.AppendUint32(rec, uint32(len(text)))
	block := len(text)<<3 | lastBlockRaw
	return append(append(rec, byte(block), byte(block>>8), byte(block>>16)), text...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errBody = errors.New("the record's body is not in the journal's format")

// parseTrajectory splits the body of a trajectory's record; frame is the zstd
// frame of its JSON. The body may be cut within the
// frame.
func parseTrajectory(body []byte) (e entry, frame []byte, err error) {
	if len(body) == 0 || body[0] != kindTrajectory && body[0] != kindLooking {
		return e, nil, errBody
	}
	b := body[1:]
	number := func() (n uint64) {
		var size int
		if n, size = binary.Uvarint(b); size <= 0 {
			err = errBody
			return 0
		}
		b = b[size:]
		return n
	}
	text := func() string {
		n := number()
		if err != nil || n > uint64(len(b)) {
			err = errBody
			return ""
		}
		s := string(b[:n])
		b = b[n:]
		return s
	}
	if body[0] == kindLooking {
		n := number()
		if err != nil || n > uint64(len(b))/sha256.Size {
			return e, nil, errBody
		}
		for range n {
			e.images = append(e.images, imageHash(b))
			b = b[sha256.Size:]
		}
	}
	e.attempt = int(number())
	e.in, e.out = int64(number()), int64(number())
	e.termination, e.id = traj.Termination(text()), text()
	if err != nil || len(b) < 8 {
		return e, nil, errBody
	}
	e.task = binary.LittleEndian.Uint64(b)
	return e, b[8:], nil
}

// decode reads the trajectory of a whole frame.
func decode(frame []byte, z *zstd.Decoder) (*traj.Trajectory, error) {
	text, err := unpack(frame, z)
	if err != nil {
		return nil, err
	}
	var t traj.Trajectory
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, fmt.Errorf("it is not a trajectory: %w", err)
	}
	return &t, nil
}

func unpack(frame []byte, z *zstd.Decoder) ([]byte, error) {
	text, err := z.DecodeAll(frame, nil)
	if err != nil {
		return nil, fmt.Errorf("it cannot be decompressed: %w", err)
	}
	return text, nil
}

// layout is what differs between the versions where a file is scanned.
type layout struct {
	version int
	head    int
	marker  []byte // stands in every record, so that the next one can be found behind damage
	offset  int    // of the marker within a record
}

var (
	layoutV1 = layout{version: 1, head: headV1, marker: []byte(`{"id":`), offset: headV1}
	layoutV2 = layout{version: 2, head: headV2, marker: magic}
)

// length reads the body's length from a record's head; false: it is no head.
func (l *layout) length(head []byte) (int64, bool) {
	at := 0
	if l.version == 2 {
		if !bytes.Equal(head[:4], magic) {
			return 0, false
		}
		at = 4
	}
	n := int64(binary.LittleEndian.Uint32(head[at:]))
	return n, n > 0 && n <= maxRecord
}

// whole reports whether the checksum fits.
func (l *layout) whole(head, body []byte) bool {
	if l.version == 1 {
		return crc32.Checksum(body, castagnoli) == binary.LittleEndian.Uint32(head[4:])
	}
	return checksumV2(head[4:16], body) == binary.LittleEndian.Uint32(head[16:])
}

func (l *layout) sequence(head []byte) uint64 {
	if l.version == 1 {
		return 0
	}
	return binary.LittleEndian.Uint64(head[8:])
}
