package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"agentcli/app/models"
	"agentcli/internal/exit"
	"agentcli/internal/safego"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/llm"
	"agentcli/model/weights"
	"agentcli/policy"
	"agentcli/traj"
)

// The values of Options.WeightsThrough.
const (
	ThroughDisk = "disk" // the servers open the folder below the run's
	ThroughWire = "wire" // the tensors are in the request
	// ThroughAdapter: the servers keep their weights, and load the adapter that is trained from the folder below the run's.
	ThroughAdapter = "adapter"
)

// ServedFolder is within the folder of a loop: the weights that its servers have.
const ServedFolder = "served"

const (
	probeText   = "The quick brown fox jumps over the lazy dog, and 12 + 30 is 42."
	probeApart  = 1e-4 // nats a token, on average: weights whose log-probs are closer are the same
	baseApart   = .05  // and of two servers of one model, in whatever types
	firstPause  = time.Second
	longPause   = 15 * time.Second
	silentTries = 2 // of a server, where another one answers
)

// servers are the sampler of a loop with Options.Rollout.Model.BaseURL. A server counts the
// weights from 1: version n + 1 are those after n steps. 0 is what it was started with, so that a
// server that was started again is found by its replies. Where they load adapters, a version is the adapter's name.
type servers struct {
	l        *run
	model    models.Served
	all      []*server
	adapters bool // they load adapters

	exchanging sync.Mutex // one exchange at a time
	mu         sync.Mutex
	want       string // the version that all servers have
	sent       bool   // ServedFolder has its weights
}

// server is one of them.
type server struct {
	*llm.Admin
	through string
	known   llm.Weights // as it said when the run began
	adapter string      // that it has loaded last
}

// newServers asks each server for its weights. The folder of the run need not be there yet.
func newServers(ctx context.Context, l *run) (*servers, error) {
	m, ok := l.x.Model.(models.Served)
	if !ok {
		return nil, exit.Usagef("a loop trains on token ids, and the servers are asked in messages; give %s %s",
			setting.Name("TokenMode"), models.TokenModeCompletions)
	}
	if key := l.o.AdminKey; key != l.o.Rollout.Model.APIKey {
		if words := models.UnencryptedKeyOf("AGENTCLI_ADMIN_KEY", l.o.Rollout.Model.BaseURL, key); words != "" {
			l.note("%s", words)
		}
	}
	s := &servers{l: l, model: m}
	for _, a := range llm.Admins(m.Servers().Client, l.o.AdminKey) {
		s.all = append(s.all, &server{Admin: a, through: cmp.Or(l.o.WeightsThrough, ThroughDisk)})
	}
	lora := l.o.Train.Open.LoRA.Rank > 0 || weights.IsAdapter(l.path)
	if s.adapters = l.o.WeightsThrough == ThroughAdapter; s.adapters && !lora {
		return nil, exit.Usagef("%s %s: the run trains no adapter; add %s", setting.Name("WeightsThrough"), ThroughAdapter,
			setting.Name("LoRA.Rank"))
	}
	err := s.each(ctx, s.all, s.meet)
	if errors.Is(err, llm.ErrNoAdmin) && lora && l.o.WeightsThrough == "" {
		s.adapters = true // vLLM
		err = s.each(ctx, s.all, s.meet)
	}
	if err != nil {
		return nil, err
	}
	m.Servers().Accept = s.accept
	return s, nil
}

// meet asks a server which weights it has, and decides how it gets others.
func (s *servers) meet(ctx context.Context, one *server) (err error) {
	if s.adapters {
		_, err = one.Models(ctx)
		return err
	}
	if one.known, err = one.Weights(ctx); err != nil {
		return err
	}
	switch given := s.l.o.WeightsThrough; {
	case given == "" && one.known.Tensors && !one.Loopback():
		one.through = ThroughWire
	case given == ThroughWire && !one.known.Tensors:
		return exit.Usagef("%s takes no weights in a request, as agentcli serve does; give %s %s, and a folder that it can open by %s",
			one.Name(), setting.Name("WeightsThrough"), ThroughDisk, setting.Name("Output"))
	}
	return nil
}

// each does something with each of some servers, at once. A server that does not answer is tried
// again: where another one does, a few times, else as long as the patience lasts.
func (s *servers) each(ctx context.Context, list []*server, do func(context.Context, *server) error) error {
	start, said, patience := time.Now(), false, s.l.o.Rollout.Model.Patience
	for try, pause := 1, firstPause; ; try, pause = try+1, min(2*pause, longPause) {
		errs := make([]error, len(list))
		var wait sync.WaitGroup
		for i, one := range list {
			wait.Go(func() {
				defer safego.Into(&errs[i])
				errs[i] = do(ctx, one)
			})
		}
		wait.Wait()
		var left []*server
		var away error
		for i, err := range errs {
			switch {
			case err == nil:
			case ctx.Err() != nil:
				return ctx.Err()
			case !llm.Passing(err):
				return err
			default:
				left, away = append(left, list[i]), err
			}
		}
		switch waited := time.Since(start); {
		case len(left) == 0:
			return nil
		case len(left) < len(s.all) && try > silentTries:
			for _, one := range left {
				s.l.note("%s is left out until it answers again; it gets the weights then", one.Name())
			}
			return nil
		case waited+pause > patience && try > silentTries:
			return traj.Mark(fmt.Errorf("%w (it was waited for, %v)", away, waited.Round(time.Second)), traj.ErrGone)
		case !said && try > silentTries:
			said = true
			s.l.note("%v (waiting up to %v for it to answer again)", away, patience)
		}
		list = left
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin implements sampler: servers that were started with the weights that training starts from
// keep them. All or none do, so that they have one version. Where one might not take weights in the
// end, it is to say so now.
func (s *servers) begin(ctx context.Context) error {
	if s.adapters {
		if !weights.IsAdapter(s.l.path) { // new adapters change nothing yet
			if apart, err := s.apart(ctx); err == nil && apart > baseApart {
				s.l.note("the log-probs of the servers' model are %.2g nats a token from those of %s: do they serve that?", apart, s.l.path)
			}
		}
		return s.adopt(ctx, 0)
	}
	same := s.l.o.WeightsThrough == ""
	for _, one := range s.all {
		same = same && one.known.First && one.known.Tensors
	}
	if same {
		apart, err := s.apart(ctx)
		if same = err == nil && apart <= probeApart; ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if same {
		s.want = s.all[0].known.Version
		s.model.SetVersion(0)
		return nil
	}
	s.l.note("the servers are given the weights of %s", s.l.path)
	return s.adopt(ctx, 0)
}

// apart is how far the log-probs of a text are from those of the model in training, in nats a token:
// the mean of the server that is farthest away.
func (s *servers) apart(ctx context.Context) (float64, error) {
	tok, err := models.OpenTokenizer(s.l.path)
	if err != nil {
		return 0, err
	}
	ids := tok.Encode(probeText, true)
	ids = ids[:min(len(ids), s.l.m.Actor.Window()-1)]
	want := make([]bool, len(ids))
	for i := range want {
		want[i] = i > 0
	}
	own, err := s.l.m.Actor.Forward(policy.Batch{Sequences: [][]int32{ids}, Want: [][]bool{want}})
	if err != nil {
		return 0, err
	}
	most := 0.
	for _, one := range s.all {
		scored, err := s.model.Servers().Score(one.Only(ctx), ids)
		if err != nil {
			return 0, err
		}
		sum := 0.
		for i, lp := range own.Logprobs {
			sum += math.Abs(lp - scored.Logprobs[i+1])
		}
		if most = max(most, sum/float64(len(own.Logprobs))); math.IsNaN(most) {
			return 0, errors.New("a log-prob is no number")
		}
	}
	return most, nil
}

// adopt implements sampler.
func (s *servers) adopt(ctx context.Context, version int64) error {
	s.exchanging.Lock()
	defer s.exchanging.Unlock()
	if err := s.write(); err != nil {
		return err
	}
	want := strconv.FormatInt(version+1, 10)
	if s.adapters {
		var err error
		if want, err = s.adapterName(version); err != nil {
			return err
		}
		s.model.Servers().SetAdapter(want)
	}
	s.mu.Lock()
	s.want, s.sent = want, true
	s.mu.Unlock()
	s.model.SetVersion(version)
	return s.each(ctx, s.all, func(ctx context.Context, one *server) error { return s.give(ctx, one, false) })
}

// adapterName is the name of the adapter of a version: of this run's alone, also where others have the same servers.
func (s *servers) adapterName(version int64) (string, error) {
	dir, err := filepath.Abs(s.l.dir)
	if err != nil {
		return "", err
	}
	h := fnv.New32a()
	h.Write([]byte(dir))
	return fmt.Sprintf("agentcli-%08x-%d", h.Sum32(), version), nil
}

// write writes the weights as they are in training now, those of adapters merged into the model's, or the adapter.
func (s *servers) write() error {
	dtype, name := weights.F32, "f32"
	if !s.adapters && !slices.ContainsFunc(s.all, func(one *server) bool { return one.known.DType != "bfloat16" }) {
		dtype, name = weights.BF16, "bf16" // what they round to in any case
	}
	folder := filepath.Join(s.l.dir, ServedFolder)
	fresh, merged := folder+".new", folder+".merged"
	for _, old := range []string{fresh, merged} {
		if err := os.RemoveAll(old); err != nil {
			return err
		}
	}
	if err := s.l.m.Actor.Save(fresh, dtype); err != nil {
		return err
	}
	if !s.adapters && weights.IsAdapter(fresh) {
		if err := models.Convert(fresh, merged, name, true); err != nil {
			return err
		}
		if err := os.RemoveAll(fresh); err != nil {
			return err
		}
		fresh = merged
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return os.Rename(fresh, folder)
}

// give has a server take what write has written, and makes sure that it did. now ends what the
// server is drawing.
func (s *servers) give(ctx context.Context, one *server, now bool) error {
	dir, err := filepath.Abs(s.l.dir)
	if err != nil {
		return err
	}
	folder := filepath.Join(dir, ServedFolder)
	if s.adapters {
		return s.load(ctx, one, folder)
	}
	if one.known.Version == "" { // it was away when the run began
		if err := s.meet(ctx, one); err != nil {
			return err
		}
	}
	if one.through == ThroughDisk {
		err = one.Load(ctx, folder, s.want, now)
		switch {
		case errors.Is(err, llm.ErrNoFolder) && s.l.o.WeightsThrough == "" && one.known.Tensors:
			one.through = ThroughWire
			s.l.note("%s does not open %s (its %v), so the weights are sent to it", one.Name(), folder, setting.Name("AllowPath"))
		case errors.Is(err, llm.ErrNoFolder):
			return setting.Errorf("%w; start the server with %s %s, or give %s %s", err, setting.Name("AllowPath"), text.ShellWord(dir),
				setting.Name("WeightsThrough"), ThroughWire)
		}
	}
	if one.through == ThroughWire {
		err = one.Send(ctx, filepath.Join(folder, "model.safetensors"), s.want, now)
	}
	switch {
	case errors.Is(err, llm.ErrWeights):
		return setting.Errorf("%w; serve the model of %s there, %s", err, setting.Name("Model"), s.l.path)
	case err != nil:
		return err
	}
	has, err := one.Weights(ctx)
	if err == nil && has.Version != s.want {
		err = fmt.Errorf("%s took the weights of version %s and has version %s; start it again, and see that nobody else sends it weights",
			one.Name(), s.want, has.Version)
	}
	return err
}

// load has a server load the adapter that write has written, and forget the one before.
func (s *servers) load(ctx context.Context, one *server, folder string) error {
	err := one.LoadAdapter(ctx, s.want, folder)
	switch {
	case errors.Is(err, llm.ErrNoFolder):
		return setting.Errorf("%w; the server is to open %s: agentcli serve with %s %s, others on this machine", err, folder,
			setting.Name("AllowPath"), text.ShellWord(filepath.Dir(folder)))
	case errors.Is(err, llm.ErrWeights):
		return setting.Errorf("%w; it is to serve %s, and to take adapters of this rank", err, s.l.path)
	case err != nil:
		return err
	}
	if one.adapter != "" && one.adapter != s.want {
		err = one.DropAdapter(ctx, one.adapter)
	}
	one.adapter = s.want
	return err
}

// holds says which version a server has: the number of its weights, or the name of the adapter.
func (s *servers) holds(ctx context.Context, one *server, want string) (version string, err error) {
	if !s.adapters {
		has, err := one.Weights(ctx)
		return has.Version, err
	}
	names, err := one.Models(ctx)
	if err == nil && slices.Contains(names, want) {
		return want, nil
	}
	return "without " + want, err
}

// accept implements llm.Tokens.Accept: a reply counts if the weights of this step drew it. A server
// with others was started again: it gets them, and is asked again.
func (s *servers) accept(ctx context.Context, name, version string) error {
	s.mu.Lock()
	want, sent := s.want, s.sent
	s.mu.Unlock()
	switch {
	case version == want:
		return nil
	case version == "":
		return traj.Mark(fmt.Errorf("%s does not say which weights drew a reply (policy_version, or weight_version in meta_info); "+
			"start agentcli serve or a newer SGLang there", name), traj.ErrFatal)
	case !sent:
		return traj.Mark(fmt.Errorf("%s drew a reply with weights of version %s, and the run began with %s; "+
			"see that nobody else sends it weights", name, version, want), traj.ErrFatal)
	}
	s.exchanging.Lock()
	defer s.exchanging.Unlock()
	for _, one := range s.all {
		if one.Name() != name {
			continue
		}
		has, err := s.holds(ctx, one, want)
		if err == nil && has != want {
			s.l.note("%s has weights of version %s, not %s: it is given them again", name, has, want)
			err = s.give(ctx, one, true)
		}
		if err != nil {
			if !llm.Passing(err) && ctx.Err() == nil {
				err = traj.Mark(err, traj.ErrFatal)
			}
			return err
		}
	}
	return traj.Mark(fmt.Errorf("%s drew a reply with weights of version %s, not %s", name, version, want), llm.ErrStale)
}

// close implements sampler.
func (s *servers) close() {
	if !s.sent {
		return
	}
	for _, one := range s.all {
		if one.adapter != "" {
			ctx, cancel := context.WithTimeout(context.Background(), longPause)
			_ = one.DropAdapter(ctx, one.adapter) // its folder goes; who does not answer keeps a name that nobody asks for
			cancel()
		}
	}
	for _, suffix := range []string{"", ".new", ".merged"} {
		_ = os.RemoveAll(filepath.Join(s.l.dir, ServedFolder) + suffix)
	}
}
