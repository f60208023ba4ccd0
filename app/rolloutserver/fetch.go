package rolloutserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"agentcli/datasets"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/media"
)

// fetchTime is what a file of another host may take.
const fetchTime = 30 * time.Second

// maxRedirects is how often such a host may name another place.
const maxRedirects = 5

// fetcher reads the files that rows name by an address. A row is of whoever sends requests,
// and this machine may reach what they cannot: only named hosts are asked.
type fetcher struct {
	hosts []string // as NAME or NAME:PORT
	limit int      // bytes of a file
	web   *http.Client
}

func newFetcher(hosts []string, limit int) *fetcher {
	f := &fetcher{hosts: hosts, limit: media.Limits{Bytes: limit}.MaxBytes()}
	f.web = &http.Client{Timeout: fetchTime, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("it was redirected more than %d times", maxRedirects)
		}
		return f.allowed(r.URL)
	}}
	return f
}

// checkHosts refuses what is no host.
func checkHosts(hosts []string) error {
	for _, h := range hosts {
		if h == "" || strings.ContainsAny(h, "/@? *") {
			return setting.Errorf("%s %q is no host; write it as images.example.org, or with a port as 127.0.0.1:9000",
				setting.Name("AllowMediaHosts"), h)
		}
	}
	return nil
}

// allowed reports whether an address is of a host that is asked.
func (f *fetcher) allowed(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("it is neither http nor https")
	}
	named := func(h string) bool {
		name, port, err := net.SplitHostPort(h)
		if err != nil { // without a port: any
			name, port = strings.Trim(h, "[]"), u.Port()
		}
		return strings.EqualFold(name, u.Hostname()) && port == u.Port()
	}
	if !slices.ContainsFunc(f.hosts, named) {
		return setting.Errorf("images of the host %.60q are not fetched; name it with %s", u.Host, setting.Name("AllowMediaHosts"))
	}
	return nil
}

// of fetches for one request: what several rows name is fetched once, and nothing where wanted
// says why not.
func (f *fetcher) of(ctx context.Context, wanted func(context.Context) error) datasets.Fetch {
	type file struct {
		bytes []byte
		err   error
	}
	seen := map[string]file{}
	return func(address string) ([]byte, error) {
		x, ok := seen[address]
		if !ok {
			x.bytes, x.err = f.fetch(ctx, address, wanted)
			seen[address] = x
		}
		return x.bytes, x.err
	}
}

func (f *fetcher) fetch(ctx context.Context, address string, wanted func(context.Context) error) ([]byte, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("it is no address")
	}
	if err := f.allowed(u); err != nil {
		return nil, err
	}
	if err := wanted(ctx); err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("it is no address")
	}
	resp, err := f.web.Do(r)
	if err != nil {
		return nil, text.WithoutAddress(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("its server answers %s", resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, int64(f.limit)+1))
	if err != nil {
		return nil, fmt.Errorf("its server stops: %w", err)
	}
	return b, nil // one that is too long is refused as any other image is
}
