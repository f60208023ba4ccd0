package mcptool

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"agentcli/env"
	"agentcli/traj"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// FuzzMessages is a server that shakes hands as it should and then answers the list of
// tools, or a call, with any bytes: what comes of it is a result in UTF-8 or an error
// of one line, in bounded time.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":ID,"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}}`), false, false)
	f.Add([]byte(`{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"x"}],"isError":true}}`), true, false)
	f.Add(
		[]byte(
			`{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"image","data":"AA==","mimeType":"image/png"},`+
				`{"type":"resource","resource":{"uri":"x","text":"y"}}]}}`), true, false)
	f.Add([]byte("event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\"error\":{\"code\":-32000,\"message\":\"a\\nb\"}}\n\n"), true, true)
	f.Add([]byte(`{"jsonrpc":"2.0","id":ID,"result":{"tools":[{"name":"a","inputSchema":{"$ref":"#"}}],"nextCursor":"x"}}`), false, false)
	f.Add([]byte(`[{"jsonrpc":"2.0","method":"ping","id":1}]`), true, false)
	f.Fuzz(func(t *testing.T, body []byte, atCall, stream bool) {
		pages := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			var m struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
			}
			_ = json.Unmarshal(b, &m)
			hostile := func() {
				if pages++; pages > 20 { // a list whose pages never end
					http.Error(w, "no more", http.StatusInternalServerError)
					return
				}
				kind := "application/json"
				if stream {
					kind = "text/event-stream"
				}
				w.Header().Set("Content-Type", kind)
				_, _ = w.Write([]byte(strings.ReplaceAll(string(body), "ID", string(m.ID))))
			}
			switch {
			case r.Method != http.MethodPost:
				w.WriteHeader(http.StatusMethodNotAllowed)
			case m.Method == "initialize":
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},`+
					`"serverInfo":{"name":"f","version":"1"}}}`, m.ID)
			case len(m.ID) == 0:
				w.WriteHeader(http.StatusAccepted)
			case m.Method == "tools/list" && atCall:
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}}`, m.ID)
			default:
				hostile()
			}
		}))
		defer server.Close()
		defer server.CloseClientConnections()
		line := func(s string) {
			if strings.ContainsAny(s, "\n\r") || !utf8.ValidString(s) {
				t.Errorf("a message is not one line of text: %q", s)
			}
		}
		set, err := Open(t.Context(), Config{Servers: []Server{{URL: server.URL}}, Timeout: time.Second,
			Notice: line, closeGrace: time.Millisecond})
		if err != nil {
			line(err.Error())
			return
		}
		defer set.Close()
		if tools := set.Tools(); len(tools) > 0 {
			tool := tools[0]
			if !atCall && !json.Valid(tool.Spec().Parameters) {
				t.Errorf("the schema of %q is %q", tool.Spec().Name, tool.Spec().Parameters)
			}
			if out, err := tool.Call(t.Context(), json.RawMessage(`{}`)); err == nil && !utf8.ValidString(out) {
				t.Errorf("the result is %q", out)
			}
			e, err := env.New(env.Config{Tools: set.Tools()[:1]})
			if err != nil {
				t.Fatal(err)
			}
			r, err := e.Step(t.Context(), traj.Action{ToolCalls: []traj.ToolCall{{Name: tool.Spec().Name, Arguments: "{}"}}})
			if err == nil {
				if _, err := r.Observation.Messages[0].Parts(); err != nil {
					t.Errorf("%q has not a place for each image: %v", r.Observation.Messages[0].Content, err)
				}
			}
		}
	})
}

// FuzzContent is a result of a server: its text has a place for each image, and none where
// they are described.
func FuzzContent(f *testing.F) {
	for _, s := range []string{`{"content":[{"type":"text","text":"a \uFFFC"},{"type":"image","data":"AA==","mimeType":"image/png"}]}`,
		`{"content":[{"type":"resource","resource":{"uri":"x","blob":"AA==","mimeType":"image/png"}},{"type":"audio","data":"","mimeType":""}]}`,
		`{"content":[{"type":"resource","resource":{"uri":"\uFFFC","blob":"AA=="}},{"type":"resource"}],"structuredContent":{"a":1}}`,
		`{"structuredContent":[1]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r mcp.CallToolResult
		if json.Unmarshal(b, &r) != nil {
			return
		}
		got, files := content(&r)
		if len(files) > 0 && strings.Count(got, traj.ImageMark) != len(files) {
			t.Errorf("%q has another number of places than %d images", got, len(files))
		}
		if described := env.WithoutFiles(got, files); len(files) > 0 && strings.Contains(described, traj.ImageMark) {
			t.Errorf("%q has a place without an image", described)
		}
	})
}
