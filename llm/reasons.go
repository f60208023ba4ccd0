package llm

import "net/http"

// Why a request is tried again.
const (
	ReasonRateLimit  = "rate_limit" // 429
	ReasonServer     = "server"     // 5xx, and what else a server says may pass
	ReasonConnection = "connection" // it was refused, or broke
	ReasonTimeout    = "timeout"    // no reply in time
	ReasonReply      = "reply"      // a reply that is none: empty, cut off, no JSON, without choices
)

// Reasons lists them.
var Reasons = []string{ReasonRateLimit, ReasonServer, ReasonConnection, ReasonTimeout, ReasonReply}

// reasonOf tells by the status of the reply; 0: there was none, or not to its end.
func reasonOf(status int) string {
	switch {
	case status == 0:
		return ReasonConnection
	case status == http.StatusTooManyRequests:
		return ReasonRateLimit
	case status >= 200 && status < 300:
		return ReasonReply
	}
	return ReasonServer
}

func (f *failure) reason() string {
	if f.why == "" {
		return ReasonReply
	}
	return f.why
}
