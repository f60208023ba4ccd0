package llm

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"agentcli/traj"
)

// TestAKeyThatAServerEchoesIsInNoError: errors go to the journal, the Parquet
// file and the log; a cut excerpt may have the key's beginning.
func TestAKeyThatAServerEchoesIsInNoError(t *testing.T) {
	const key = "sk-canary0123456789abcdef"
	for _, status := range []int{200, 400, 401, 404, 500} {
		for _, lead := range []int{0, 90, 105, 110, 118, 270, 290} {
			for _, shape := range []string{"%", `{"choices": % }`, `{"error":{"message":"%"}}`, `{"detail":"%"`} {
				h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(status)
					body := strings.Replace(shape, "%", strings.Repeat("x", lead)+" "+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")+" ", 1)
					_, _ = w.Write([]byte(body))
				}))
				c, err := New(Config{BaseURL: h.URL + "/v1", APIKey: key, Model: "m", Retries: -1})
				if err != nil {
					t.Fatal(err)
				}
				_, err = c.Generate(t.Context(), &traj.Request{Messages: []traj.Message{{Role: traj.RoleUser, Content: "?"}}})
				h.Close()
				if err == nil || strings.Contains(err.Error(), "sk-canary") {
					t.Errorf("%d, %d, %s: %v", status, lead, shape, err)
				}
			}
		}
	}
}
