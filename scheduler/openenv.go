package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"agentcli/engine"
	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/model/chat"
	"agentcli/traj"

	"github.com/coder/websocket"
)

// openOpenEnv is ms-swift's openenv_scheduler: gym_scheduler with an environment that is a
// server of OpenEnv (openenv-core 0.3). A row's env_config has reset_kwargs and
// system_message; its base_url can name no other server than Options.Gym.
func openOpenEnv(_ context.Context, o Options) (*Set, error) {
	u, err := url.Parse(o.Gym)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, setting.Errorf("%s %s asks a server of OpenEnv: give its address, as http://127.0.0.1:8000, by %s",
			setting.Name("Scheduler"), OpenEnvName, setting.Name("GymEnv"))
	}
	return &Set{make: func(t traj.Task) (engine.Scheduler, error) {
		config, _, err := gymConfig(t.Meta)
		if err != nil {
			return nil, err
		}
		return &gym{config: config, env: &openEnv{address: strings.TrimRight(o.Gym, "/"), timeout: o.Timeout}}, nil
	}}, nil
}

// openEnv is a session with a server of OpenEnv: a WebSocket, over which JSON objects go
// (openenv/core/env_server/types.py).
type openEnv struct {
	address string
	timeout time.Duration
	conn    *websocket.Conn
}

// longestObservation is how long an answer of the server may be, in bytes.
const longestObservation = 16 << 20

// Reset implements Gym.
func (e *openEnv) Reset(ctx context.Context, r GymReset) (GymStart, error) {
	var config struct {
		BaseURL string          `json:"base_url"`
		System  string          `json:"system_message"`
		Reset   json.RawMessage `json:"reset_kwargs"`
	}
	if err := json.Unmarshal(r.Config, &config); err != nil {
		return GymStart{}, malformed.Field("env_config", malformed.Type, "%w", err)
	}
	if own := strings.TrimRight(config.BaseURL, "/"); own != "" && own != e.address {
		return GymStart{}, malformed.Field("env_config.base_url", malformed.Unsupported, "it is %q, and %s names another server",
			text.Address(own), setting.Name("GymEnv"))
	}
	if len(config.Reset) == 0 || string(config.Reset) == "null" {
		config.Reset = json.RawMessage("{}")
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	for {
		o, err := e.begin(ctx, config.Reset)
		var refused *openEnvError
		if err == nil {
			return GymStart{Observation: o.text, System: config.System}, nil
		}
		if !errors.As(err, &refused) || refused.Code != "CAPACITY_REACHED" {
			return GymStart{}, err
		}
		_ = e.conn.Close(websocket.StatusNormalClosure, "")
		select { // a session of another trajectory ends
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return GymStart{}, err
		}
	}
}

// begin opens a session and resets its environment.
func (e *openEnv) begin(ctx context.Context, reset json.RawMessage) (observed, error) {
	var err error
	if e.conn, _, err = websocket.Dial(ctx, e.address+"/ws", nil); err != nil { //nolint:bodyclose // Dial's callers never need to
		return observed{}, fmt.Errorf("%s: %w: %w", text.Address(e.address), ErrProgram, err)
	}
	e.conn.SetReadLimit(longestObservation)
	return e.ask(ctx, "reset", reset)
}

// Step implements Gym. An action that the environment does not know is told to the model.
func (e *openEnv) Step(ctx context.Context, reply string) (GymStep, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	o, err := e.ask(ctx, "step", openEnvAction(reply))
	var refused *openEnvError
	if errors.As(err, &refused) && refused.Code == "VALIDATION_ERROR" {
		return GymStep{Observation: "Error: " + text.Cut(refused.Message+" "+string(refused.Errors), 2000)}, nil
	}
	return GymStep{Observation: o.text, Reward: o.reward, Done: o.done}, err
}

// Close implements Gym.
func (e *openEnv) Close() error {
	if e.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(e.timeout, 5*time.Second))
	defer cancel()
	_ = e.conn.Write(ctx, websocket.MessageText, []byte(`{"type": "close"}`))
	return e.conn.Close(websocket.StatusNormalClosure, "")
}

// openEnvAction is what a reply asks the environment to do: the JSON object that it is, in
// a code block or not, or {"message": reply}.
func openEnvAction(reply string) json.RawMessage {
	reply = strings.TrimSpace(reply)
	if lines := strings.Split(reply, "\n"); len(lines) >= 2 && strings.HasPrefix(reply, "```") &&
		strings.HasPrefix(strings.TrimSpace(lines[len(lines)-1]), "```") {
		reply = strings.TrimSpace(strings.Join(lines[1:len(lines)-1], "\n"))
	}
	if strings.HasPrefix(reply, "{") && json.Valid([]byte(reply)) {
		return json.RawMessage(reply)
	}
	var said string
	if json.Unmarshal([]byte(reply), &said) == nil { // a JSON text is what it says
		reply = said
	}
	b, err := json.Marshal(map[string]string{"message": reply})
	if err != nil { // a string always can be written
		return json.RawMessage("{}")
	}
	return b
}

// observed is an answer to reset or step.
type observed struct {
	text   string
	reward float64
	done   bool
}

// openEnvError is a server's refusal.
type openEnvError struct {
	Code    string `json:"code"`
	Message string `json:"message"`

	Errors json.RawMessage `json:"errors"` // of an action: which of its fields are wrong
}

// Error implements error.
func (e *openEnvError) Error() string {
	return fmt.Sprintf("the environment answered %s: %s", e.Code, text.Cut(e.Message, 300))
}

// ask sends a message and reads the answer to it.
func (e *openEnv) ask(ctx context.Context, kind string, data json.RawMessage) (o observed, err error) {
	fail := func(err error) (observed, error) {
		return o, fmt.Errorf("%s: %w: %w", text.Address(e.address), ErrProgram, err)
	}
	b, err := json.Marshal(map[string]any{"type": kind, "data": data})
	if err != nil {
		return fail(err)
	}
	if err := e.conn.Write(ctx, websocket.MessageText, b); err != nil {
		return fail(err)
	}
	_, b, err = e.conn.Read(ctx)
	if err != nil {
		return fail(err)
	}
	var answer struct {
		Type string          `json:"type"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return fail(err)
	}
	switch answer.Type {
	case "observation":
	case "error":
		var refused openEnvError
		if err := json.Unmarshal(answer.Data, &refused); err != nil {
			return fail(err)
		}
		return fail(&refused)
	default:
		return fail(fmt.Errorf("a message of the type %.40q", answer.Type))
	}
	var step struct {
		Observation json.RawMessage `json:"observation"`
		Reward      *float64        `json:"reward"`
		Done        bool            `json:"done"`
	}
	if err := json.Unmarshal(answer.Data, &step); err != nil {
		return fail(err)
	}
	if step.Reward != nil {
		o.reward = *step.Reward
	}
	if len(step.Observation) == 0 {
		step.Observation = json.RawMessage("{}")
	}
	o.done = step.Done
	if o.text, err = chat.PythonJSON(step.Observation); err != nil {
		return fail(err)
	}
	return o, nil
}
