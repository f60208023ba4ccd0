package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentcli/app/rundir"
	"agentcli/internal/filesys"
	"agentcli/journal"
	"agentcli/llm/llmtest"
	"agentcli/parquet"
)

// canary is the start of every secret of the test below, and of nothing else.
const canary = "canary-7f3a-"

// wireTap records what each server was sent.
type wireTap struct {
	mu   sync.Mutex
	sent map[string]*bytes.Buffer
}

func (w *wireTap) take(server string, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sent[server] == nil {
		w.sent[server] = &bytes.Buffer{}
	}
	fmt.Fprintf(w.sent[server], "%s %s %v\n%s\n", r.Method, r.URL, r.Header, body)
}

// TestNoSecretLeavesThePlaceWhereItWasGiven: one unique string in each place
// where a secret can stand; commands with servers that work and that fail; and a
// search for the strings over everything written, printed, sent or inherited.
func TestNoSecretLeavesThePlaceWhereItWasGiven(t *testing.T) {
	if _, err := exec.LookPath("agentcli"); err != nil {
		t.Fatal(err) // TestMain puts it into PATH
	}
	model := llmtest.New(t, func(r *llmtest.Request) llmtest.Reply {
		if r.Messages[0].Text() == "" {
			return llmtest.Text("0")
		}
		return product(r)
	})
	target, err := url.Parse(strings.TrimSuffix(model.BaseURL(), "/v1"))
	if err != nil {
		t.Fatal(err)
	}
	tap := &wireTap{sent: map[string]*bytes.Buffer{}}
	server := func(name string) *url.URL {
		proxy := httputil.NewSingleHostReverseProxy(target)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tap.take(name, r)
			echo := r.URL.String() + " " + fmt.Sprint(r.Header)
			switch name {
			case "works":
				proxy.ServeHTTP(w, r)
			case "refuses":
				http.Error(w, echo, http.StatusUnauthorized)
			case "fails":
				http.Error(w, `{"error":{"message":`+quoteJSON(echo)+`}}`, http.StatusBadRequest)
			case "babbles":
				_, _ = io.WriteString(w, echo)
			case "refuses in MCP":
				var request struct {
					ID json.RawMessage `json:"id"`
				}
				_ = json.NewDecoder(r.Body).Decode(&request)
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":%s}}`, request.ID, quoteJSON(echo))
			default: // no choices, no rewards, no tools
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"message":`+quoteJSON(echo)+`}`)
			}
		}))
		t.Cleanup(s.Close)
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	with := func(u *url.URL, name, path, query string) string {
		c := *u
		c.User, c.Path, c.RawQuery = url.UserPassword(canary+name+"-user", canary+name+"-password"), path, query
		return c.String()
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var rows strings.Builder
	for a := 2; a <= 8; a += 2 {
		fmt.Fprintf(&rows, `{"id":"p%d","question":"What is %d * 7?","answer":"%d"}`+"\n", a, a, a*7)
	}
	write("q.jsonl", rows.String())
	write("r.jsonl", `{"id":"1","response":"The answer is 14","answer":"14"}`+"\n")
	write("tool.sh", `env >>inherited-by-tool.txt
while read -r line; do
	id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9][0-9]*\).*/\1/')
	case $line in
	*describe*) echo "{\"id\":$id,\"tools\":[{\"name\":\"calculator\",\"description\":\"Work it out.\",\
\"parameters\":{\"type\":\"object\",\"properties\":{\"expression\":{\"type\":\"string\"}}}}]}" ;;
	*call*)
		what=$(printf '%s' "$line" | sed 's/.*"expression":"\([0-9*]*\)".*/\1/')
		echo "{\"id\":$id,\"result\":\"$(($what))\"}" ;;
	esac
done
`)
	write("dies.sh", "env >>inherited-by-tool.txt; echo \"$PASSED_ON $*\" >&2; exit 3\n")
	write("reward.sh", `env >>inherited-by-reward.txt
while read -r line; do
	id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9][0-9]*\).*/\1/')
	echo "{\"id\":$id,\"reward\":1}"
done
`)
	write("mcp.json", fmt.Sprintf(`{"mcpServers":{"docs":{"url":%s,"headers":{"Authorization":"Bearer %smcp-header"}},
		"program":{"command":"sh","args":["dies.sh","--api-key","%smcp-argument"],"env":{"MCP_KEY":"%smcp-env"}}}}`,
		quoteJSON(with(server("empty"), "mcp", "/mcp", "apiKey="+canary+"mcp-query")), canary, canary, canary))
	const good = "OPENAI_API_KEY=" + canary + "dotenv-key\nHF_TOKEN=" + canary + "dotenv-token\n"
	dotenvs := map[string]string{"good": good, "broken": "this is BROKEN " + canary + "dotenv-line\n" + good}

	tool := "exec:TOOL_KEY=" + canary + "tool-variable sh tool.sh --token " + canary + "tool-flag"
	dies := "exec:TOOL_KEY=" + canary + "tool-variable sh dies.sh --token " + canary + "tool-flag"
	reward := "exec:REWARD_KEY=" + canary + "reward-variable sh reward.sh"
	type command struct {
		server string
		args   []string
	}
	var commands []command
	n := 0
	for _, name := range []string{"works", "refuses", "fails", "babbles", "empty", "away"} {
		u := server(name)
		if name == "away" {
			u = &url.URL{Scheme: "http", Host: "127.0.0.1:9"}
		}
		base := []string{"--base-url", with(u, "model", "/v1", ""), "--model", "m", "-d", "q.jsonl",
			"--retries", "1", "-j", "2", "--tools", "none"}
		add := func(sub string, more ...string) {
			n++
			commands = append(commands, command{name, slices.Concat([]string{sub}, base, more)})
		}
		out := func() string { return fmt.Sprintf("out-%d", n) }
		add("eval", "--reward", "exact", "--tool", tool, "--tool-env", "PASSED_ON", "--output", out())
		add("rollout", "--reward", reward, "--tool", tool, "--log-format", "json", "-o", out()+".parquet")
		if name != "works" {
			add("eval", "--reward", with(u, "reward", "/reward", "key="+canary+"reward-query"), "--output", out())
			continue
		}
		add("eval", "--reward", "exact", "--tool", dies, "--tool-env", "PASSED_ON", "--output", out())
		add("eval", "--reward", "exact", "--mcp-config", "mcp.json", "--output", out())
		add("eval", "--reward", "exact", "--mcp", with(server("babbles"), "mcp", "/mcp", "apiKey="+canary+"mcp-query"), "--output", out())
		add("eval", "--reward", "exact", "--mcp", with(server("refuses in MCP"), "mcp", "/mcp", "apiKey="+canary+"mcp-query"), "--output", out())
		add("eval", "--reward", with(server("fails"), "reward", "/reward", "key="+canary+"reward-query"), "--output", out())
	}
	commands = append(commands,
		command{"", []string{"score", "--reward", reward, "r.jsonl"}},
		command{"", []string{"score", "--reward", with(server("empty"), "reward", "/r", "key="+canary+"reward-query"), "r.jsonl"}},
		command{"", []string{"doctor", "--json", "--tool", tool, "--mcp-config", "mcp.json"}},
		command{"", []string{"datasets", "list"}},
		command{"", []string{"--version"}})

	var printed bytes.Buffer
	run := func(args ...string) {
		cmd := program(t, t.Context(), args...)
		cmd.Dir = dir
		cmd.Env = slices.DeleteFunc(
			cmd.Env, func(kv string) bool { return strings.HasPrefix(kv, "OPENAI_") || strings.HasPrefix(kv, "HF_TOKEN=") })
		cmd.Env = append(cmd.Env, "XDG_CACHE_HOME="+filepath.Join(dir, "cache"), // where a rollout that fails keeps its journal
			"PASSED_ON="+canary+"passed-on", "AWS_SECRET_ACCESS_KEY="+canary+"aws", "HTTPS_PROXY=http://u:"+canary+"proxy@127.0.0.1:9")
		out, err := cmd.CombinedOutput()
		fmt.Fprintf(&printed, "$ agentcli %s\n%s\n", args[0], out)
		if err != nil {
			fmt.Fprintf(&printed, "%v\n", err)
		}
	}
	for _, which := range []string{"broken", "good"} {
		write(".env", dotenvs[which])
		for _, c := range commands {
			if which == "broken" && (c.server != "" || c.args[0] == "doctor") {
				continue // one command of each kind tells all there is to tell
			}
			run(c.args...)
		}
	}
	for _, out := range []string{"out-1"} {
		run("inspect", out)
	}

	found := func(where, text string, allowed ...string) {
		t.Helper()
		for rest := text; ; {
			i := strings.Index(rest, canary)
			if i < 0 {
				return
			}
			rest = rest[i:]
			word := rest[:min(len(rest), len(canary)+40)]
			if !slices.ContainsFunc(allowed, func(a string) bool { return strings.HasPrefix(word, canary+a) }) {
				t.Errorf("%s: %q", where, word)
				return
			}
			rest = rest[len(canary):]
		}
	}
	found("printed", printed.String())
	if !strings.Contains(printed.String(), "reward 1.000") {
		t.Errorf("nothing works, which shows nothing:\n%s", printed.String())
	}
	files, kept, rowsRead := 0, 0, 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch {
		case slices.Contains([]string{".env", "mcp.json", "q.jsonl", "r.jsonl", "tool.sh", "dies.sh", "reward.sh"}, rel): // the user's own
			return nil
		case rel == "inherited-by-tool.txt": // each program its own, and what was passed on
			found(rel, string(b), "tool-variable", "passed-on", "mcp-env")
		case rel == "inherited-by-reward.txt":
			found(rel, string(b), "reward-variable")
		case filepath.Base(path) == rundir.ConfigFile: // --resume needs addresses and commands
			found(rel, string(b), "model-", "reward-", "tool-", "mcp-")
			if st, err := d.Info(); err == nil && st.Mode().Perm() != 0o600 && bytes.Contains(b, []byte(canary)) {
				t.Errorf("%s has the mode %v", rel, st.Mode())
			}
			return nil
		default:
			files++
			found(rel, string(b))
		}
		if strings.HasPrefix(d.Name(), rundir.JournalFile) { // what it keeps is compressed
			return journal.Cat(filesys.OS, path, func(b []byte) error {
				kept++
				found(rel, string(b))
				return nil
			})
		}
		if filepath.Ext(path) == ".parquet" {
			table, err := parquet.OpenTable(path)
			if err != nil {
				return err
			}
			defer table.Close()
			for row, err := range table.Rows(t.Context()) {
				if err != nil {
					return err
				}
				rowsRead++
				found(rel, fmt.Sprintf("%s", row)) // %s: columns of bytes as text
			}
			for _, key := range []string{parquet.KeyRun, parquet.KeySchema} {
				value, ok := table.Value(key)
				if !ok {
					t.Errorf("%s has no metadata %s", rel, key)
				}
				found(rel+" metadata "+key, value)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 5 {
		t.Errorf("%d files were written, which shows nothing", files)
	}
	if kept == 0 || rowsRead == 0 {
		t.Errorf("%d trajectories in journals, %d rows of Parquet, which shows nothing", kept, rowsRead)
	}
	tap.mu.Lock()
	defer tap.mu.Unlock()
	for name, b := range tap.sent {
		found("sent to "+name, b.String(), "dotenv-key", "reward-query", "mcp-query", "mcp-header")
		if strings.Contains(b.String(), "dotenv-token") || strings.Contains(b.String(), "passed-on") {
			t.Errorf("%s was sent what is another's", name)
		}
	}
}

func quoteJSON(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}
