package ask

import (
	"agentcli/app/images"
	"agentcli/app/models"
	"agentcli/media/processor"
	"agentcli/model/arch"
	"agentcli/model/chat"
	"agentcli/policy"
	"agentcli/traj"
)

// sight is how a model sees images. It is read at the first image.
type sight struct {
	path      string
	processor *processor.Processor
	encoder   *arch.Vision
	files     *images.Preprocessor
}

func (s *sight) open() (*processor.Processor, *arch.Vision, error) {
	if s.processor == nil {
		v, err := models.Vision(s.path)
		if err != nil {
			return nil, nil, err
		}
		p, err := policy.OpenProcessor(s.path, v, 0, 0)
		if err != nil {
			return nil, nil, err
		}
		s.processor, s.encoder = p, v
	}
	return s.processor, s.encoder, nil
}

func (s *sight) places() (*chat.ImagePlaces, error) {
	p, v, err := s.open()
	if err != nil {
		return nil, err
	}
	return &chat.ImagePlaces{Token: v.ImageToken, Grid: p.Grid}, nil
}

// positions are those of n ids: of time, row and column.
func (s *sight) positions(n int, spans []traj.ImageSpan) ([3][]int32, error) {
	if len(spans) == 0 {
		return policy.Positions(n, nil, 1), nil
	}
	_, v, err := s.open()
	if err != nil {
		return [3][]int32{}, err
	}
	return policy.Positions(n, spans, v.Merge), nil
}

// text is a text of ids in which image files stand at the places of the image token.
func (s *sight) text(ids []int32, paths []string) (policy.Sequence, error) {
	if len(paths) == 0 {
		return policy.Sequence{IDs: ids}, nil
	}
	_, v, err := s.open()
	if err != nil {
		return policy.Sequence{}, err
	}
	if s.files == nil {
		if s.files, err = images.Open(s.path, images.Options{}); err != nil {
			return policy.Sequence{}, err
		}
	}
	return s.files.Place(ids, v.ImageToken, paths)
}
