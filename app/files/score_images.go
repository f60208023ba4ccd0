package files

import (
	"maps"
	"strings"

	"agentcli/datasets"
	"agentcli/internal/malformed"
	"agentcli/traj"
)

// storedMessages are the messages of a row of a file of trajectories. Their images are in the
// column images; image_refs says which of them stands where. Another <image> in a text is text.
func storedMessages(fields map[string]any) ([]traj.Message, error) {
	list, isList := fields["messages"].([]any)
	if !isList {
		return datasets.ReadStoredMessages(fields["messages"])
	}
	images, _ := fields["images"].([]any)
	placed := make([]any, len(list))
	for i, v := range list {
		m, _ := v.(map[string]any)
		refs, _ := m["image_refs"].([]any)
		if placed[i] = v; len(refs) == 0 {
			continue
		}
		m = maps.Clone(m)
		if err := placeStored(m, refs, images); err != nil {
			return nil, malformed.Errorf(malformed.Mismatch, "message %d: %w", i, err)
		}
		placed[i] = m
	}
	return datasets.ReadStoredMessages(placed)
}

// placeStored gives a message its images in their places, named by their hash.
func placeStored(m map[string]any, refs, images []any) error {
	const word = "<image>"
	content, _ := m["content"].(string)
	var b strings.Builder
	done := 0
	var named []any
	for _, v := range refs {
		ref, _ := v.(map[string]any)
		n, known := numberOf(ref["image"])
		at, placed := numberOf(ref["at"])
		from := int(at)
		if !known || n < 0 || int(n) >= len(images) {
			return malformed.Errorf(malformed.Range, "it has image %v of %d", ref["image"], len(images))
		}
		if !placed || from < done || from+len(word) > len(content) || content[from:from+len(word)] != word {
			return malformed.Errorf(malformed.Mismatch, "its content has no %s at byte %v", word, ref["at"])
		}
		b.WriteString(traj.PlainText(content[done:from]) + traj.ImageMark)
		done = from + len(word)
		named = append(named, namedImage(images[int(n)]))
	}
	m["content"], m["images"] = b.String()+traj.PlainText(content[done:]), named
	return nil
}

// namedImage is an image of the column as programs are given it, without its bytes.
func namedImage(v any) map[string]any {
	column, _ := v.(map[string]any)
	im := map[string]any{}
	for _, key := range []string{"hash", "path", "width", "height"} {
		if column[key] != nil {
			im[key] = column[key]
		}
	}
	if column["source"] != nil {
		im["crop"] = map[string]any{"source": column["source"], "box": column["box"]}
	}
	return im
}
