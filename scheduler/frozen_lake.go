package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"

	"agentcli/internal/malformed"
)

// frozenLake is gym's FrozenLake as text: from the start S over ice F to the goal G, and
// into no hole H. Its reward is 1 at the goal. The config may have "size" (3 to 12; 4),
// "map" (rows of text) and "max_steps"; without a map the seed makes one that can be
// crossed.
type frozenLake struct {
	rows  []string
	x, y  int
	steps int
	max   int
}

const lakePrompt = "You walk over a frozen lake, a square at a time. S is the start, F is ice, H is a hole and G is the goal. " +
	"P is where you stand. Answer each map with one of <move>up</move>, <move>down</move>, <move>left</move>, <move>right</move>."

// Reset implements Gym.
func (l *frozenLake) Reset(_ context.Context, r GymReset) (GymStart, error) {
	config := struct {
		Size     int      `json:"size"`
		Map      []string `json:"map"`
		MaxSteps int      `json:"max_steps"`
		Seed     *int64   `json:"seed"`
	}{Size: 4, MaxSteps: 100}
	if err := json.Unmarshal(r.Config, &config); err != nil {
		return GymStart{}, &malformed.Error{Field: "env_config", Kind: malformed.Type, Err: err}
	}
	if config.Size < 3 || config.Size > 12 {
		return GymStart{}, malformed.Field("env_config.size", malformed.Range, "is %d; it must be from 3 to 12", config.Size)
	}
	l.rows, l.max = config.Map, config.MaxSteps
	if l.rows == nil {
		seed := uint64(0)
		if config.Seed != nil {
			seed = uint64(*config.Seed)
		}
		l.rows = lakeMap(rand.New(rand.NewPCG(seed, uint64(config.Size))), config.Size)
	}
	if len(l.rows) == 0 || l.max < 1 {
		return GymStart{}, malformed.Field("env_config", malformed.Range, "has a map of %d rows and %d steps; want at least one of both",
			len(l.rows), l.max)
	}
	for y, row := range l.rows {
		if len(row) != len(l.rows[0]) || strings.Trim(row, "SFHG") != "" {
			return GymStart{}, malformed.Field("env_config.map", malformed.Range,
				"row %d is %q; want rows of S, F, H and G, all of one length", y, row)
		}
		if x := strings.Index(row, "S"); x >= 0 {
			l.x, l.y = x, y
		}
	}
	if !crossable(l.rows, l.x, l.y) {
		return GymStart{}, malformed.Field("env_config.map", malformed.Range, "no way leads from S to G")
	}
	return GymStart{Observation: l.shown(), System: lakePrompt}, nil
}

// lakeMap draws maps until one can be crossed.
func lakeMap(r *rand.Rand, size int) []string {
	for {
		rows := make([]string, size)
		for y := range rows {
			b := make([]byte, size)
			for x := range b {
				b[x] = 'F'
				if r.IntN(5) == 0 {
					b[x] = 'H'
				}
			}
			switch y {
			case 0:
				b[0] = 'S'
			case size - 1:
				b[size-1] = 'G'
			}
			rows[y] = string(b)
		}
		if crossable(rows, 0, 0) {
			return rows
		}
	}
}

// crossable reports whether a way leads from a square to the goal.
func crossable(rows []string, x, y int) bool {
	type square struct{ x, y int }
	seen := map[square]bool{}
	for open := []square{{x, y}}; len(open) > 0; {
		s := open[0]
		open = open[1:]
		if s.y < 0 || s.y >= len(rows) || s.x < 0 || s.x >= len(rows[0]) || seen[s] || rows[s.y][s.x] == 'H' {
			continue
		}
		seen[s] = true
		if rows[s.y][s.x] == 'G' {
			return true
		}
		open = append(open, square{s.x + 1, s.y}, square{s.x - 1, s.y}, square{s.x, s.y + 1}, square{s.x, s.y - 1})
	}
	return false
}

var lakeMove = regexp.MustCompile(`(?i)<move>\s*(up|down|left|right)\s*</move>`)

// Step implements Gym. The last move of the reply counts.
func (l *frozenLake) Step(_ context.Context, reply string) (GymStep, error) {
	l.steps++
	moves := lakeMove.FindAllStringSubmatch(reply, -1)
	if len(moves) == 0 {
		return l.limited(GymStep{Observation: "There is no move in your answer. Write for example <move>right</move>.\n" + l.shown()}), nil
	}
	switch strings.ToLower(moves[len(moves)-1][1]) {
	case "up":
		l.y = max(l.y-1, 0)
	case "down":
		l.y = min(l.y+1, len(l.rows)-1)
	case "left":
		l.x = max(l.x-1, 0)
	case "right":
		l.x = min(l.x+1, len(l.rows[0])-1)
	}
	switch l.rows[l.y][l.x] {
	case 'G':
		return GymStep{Observation: "You have reached the goal.", Reward: 1, Done: true}, nil
	case 'H':
		return GymStep{Observation: "You have fallen into a hole.", Done: true}, nil
	}
	return l.limited(GymStep{Observation: l.shown()}), nil
}

// limited ends the walk where it takes too long.
func (l *frozenLake) limited(s GymStep) GymStep {
	s.Done = s.Done || l.steps >= l.max
	return s
}

// shown is the map with the player.
func (l *frozenLake) shown() string {
	rows := make([]string, len(l.rows))
	copy(rows, l.rows)
	rows[l.y] = rows[l.y][:l.x] + "P" + rows[l.y][l.x+1:]
	return fmt.Sprintf("%s\nWhere do you go?", strings.Join(rows, "\n"))
}

// Close implements Gym.
func (l *frozenLake) Close() error { return nil }
