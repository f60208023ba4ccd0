package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"

	"agentcli/internal/filesys"
	"agentcli/traj"
)

// imageHash is the SHA-256 of an image's file.
type imageHash [sha256.Size]byte

// images are the files of images in a journal, each of which has one record. Those used last
// stay in memory, so that the attempts at one task share them. It is safe for concurrent use.
type images struct {
	mu    sync.Mutex
	at    map[imageHash]int64 // offsets of the records
	last  []imageHash         // in memory, the one used last at the end
	bytes map[imageHash][]byte
}

// imagesInMemory is how many files stay in memory.
const imagesInMemory = 4

func newImages() *images {
	return &images{at: map[imageHash]int64{}, bytes: map[imageHash][]byte{}}
}

// errImage: a trajectory's image has no record that can be read.
var errImage = errors.New("an image of the trajectory is missing")

// eachImage calls do for every image of a trajectory, wherever it stands.
func eachImage(t *traj.Trajectory, do func(*traj.Image) error) error {
	all := func(images []traj.Image) error {
		for i := range images {
			if err := do(&images[i]); err != nil {
				return err
			}
		}
		return nil
	}
	messages := func(messages []traj.Message) error {
		for i := range messages {
			if err := all(messages[i].Images); err != nil {
				return err
			}
		}
		return nil
	}
	err := errors.Join(all(t.Images), messages(t.Messages), messages(t.Task.Messages))
	for _, b := range t.Branches {
		err = errors.Join(err, eachImage(b, do))
	}
	return err
}

// withoutFiles is a trajectory whose images have no bytes, and the files that they had.
func withoutFiles(t *traj.Trajectory) (*traj.Trajectory, map[imageHash][]byte) {
	files := map[imageHash][]byte{}
	_ = eachImage(t, func(im *traj.Image) error {
		if h, ok := hashOf(im); ok && im.Bytes != nil {
			files[h] = im.Bytes
		}
		return nil
	})
	if len(files) == 0 {
		return t, nil
	}
	return stripped(t), files
}

func stripped(t *traj.Trajectory) *traj.Trajectory {
	c := *t
	images := func(all []traj.Image) []traj.Image {
		all = slices.Clone(all)
		for i := range all {
			if _, ok := hashOf(&all[i]); ok {
				all[i].Bytes = nil
			}
		}
		return all
	}
	messages := func(all []traj.Message) []traj.Message {
		all = slices.Clone(all)
		for i := range all {
			all[i].Images = images(all[i].Images)
		}
		return all
	}
	c.Images, c.Messages, c.Task.Messages = images(t.Images), messages(t.Messages), messages(t.Task.Messages)
	c.Branches = nil
	for _, b := range t.Branches {
		c.Branches = append(c.Branches, stripped(b))
	}
	return &c
}

func hashOf(im *traj.Image) (h imageHash, ok bool) {
	b, err := hex.DecodeString(im.Hash)
	if err != nil || len(b) != len(h) || im.Crop != nil {
		return h, false
	}
	return imageHash(b), true
}

// keep writes the files that have no record yet. They are on disk when it returns.
func (m *images) keep(a *appender, files map[imageHash][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for h, file := range files {
		if m.at[h] > 0 {
			continue
		}
		rec, err := imageRecord(h, file)
		if err != nil {
			return err
		}
		at, err := a.append(rec)
		if err != nil {
			return err
		}
		m.at[h] = at
	}
	return nil
}

// has reports whether all of these have a record.
func (m *images) has(all []imageHash) bool {
	return !slices.ContainsFunc(all, func(h imageHash) bool { return m.at[h] == 0 })
}

// restore gives a trajectory's images their files.
func (m *images) restore(t *traj.Trajectory, f filesys.File) error {
	byHash := map[string][]byte{}
	err := eachImage(t, func(im *traj.Image) (err error) {
		h, ok := hashOf(im)
		if ok && im.Bytes == nil {
			im.Bytes, err = m.file(h, f)
			byHash[im.Hash] = im.Bytes
		}
		return err
	})
	if err != nil {
		return err
	}
	return eachImage(t, func(im *traj.Image) error {
		if im.Crop != nil {
			crop := *im.Crop
			crop.File = byHash[crop.Source]
			im.Crop = &crop
		}
		return nil
	})
}

// file reads an image's file.
func (m *images) file(h imageHash, f filesys.File) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.bytes[h]
	if !ok {
		at := m.at[h]
		if at == 0 {
			return nil, errImage
		}
		size, err := f.Size()
		if err != nil {
			return nil, err
		}
		rec, whole, err := (&window{r: f, size: size, exact: true}).record(&layoutV2, at)
		if err != nil {
			return nil, err
		}
		was, file, perr := parseImage(rec.body)
		if !whole || perr != nil || was != h {
			return nil, fmt.Errorf("%w: the record at byte %d is damaged", errImage, at)
		}
		b = slices.Clone(file)
	}
	if i := slices.Index(m.last, h); i >= 0 {
		m.last = slices.Delete(m.last, i, i+1)
	} else if len(m.last) == imagesInMemory {
		delete(m.bytes, m.last[0])
		m.last = slices.Delete(m.last, 0, 1)
	}
	m.last, m.bytes[h] = append(m.last, h), b
	return b, nil
}

func imageRecord(h imageHash, file []byte) ([]byte, error) {
	rec := newRecord(kindImage, len(h)+len(file))
	return finish(append(append(rec, h[:]...), file...))
}

// parseImage reads the body of an image's record.
func parseImage(body []byte) (h imageHash, file []byte, err error) {
	if len(body) < 1+len(h) || body[0] != kindImage {
		return h, nil, errBody
	}
	return imageHash(body[1:]), body[1+len(h):], nil
}
