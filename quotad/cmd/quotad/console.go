package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	"github.com/sluice-gateway/sluice/quotad"
	"github.com/sluice-gateway/sluice/quotad/internal/api"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
)

const defaultAddr = "127.0.0.1:7072"

// console is what the verbs share: where to ask, and how to print.
type console struct {
	addr, output string
	tls          quotad.TLSFiles // all empty: no TLS
	leaderWait   time.Duration
}

// client makes a client of a node's admin API. A host:port alone gets the scheme that goes with the TLS flags.
func (c *console) client(addr string) (adminv1connect.AdminServiceClient, error) {
	hc, scheme := http.DefaultClient, "http://"
	if c.tls != (quotad.TLSFiles{}) {
		var err error
		if err = c.tlsComplete(); err != nil {
			return nil, err
		}
		if hc, err = c.tls.HTTPClient(); err != nil {
			return nil, err
		}
		scheme = "https://"
	}
	full := addr
	if !strings.Contains(addr, "://") {
		full = scheme + addr
	}
	u, err := url.Parse(full)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" && full != addr {
		return nil, fmt.Errorf("--addr: %q is not host:port, nor an URL of http or https", addr)
	}
	if u.Port() != "" {
		if err := replica.CheckAddress(u.Host); err != nil {
			return nil, fmt.Errorf("--addr: %w", err)
		}
	}
	return adminv1connect.NewAdminServiceClient(hc, full), nil
}

// tlsComplete names the flags that are missing beside those that there are.
func (c *console) tlsComplete() error {
	var missing []string
	for _, f := range [...]struct{ name, file string }{
		{"--tls-ca", c.tls.CA}, {"--tls-cert", c.tls.Cert}, {"--tls-key", c.tls.Key},
	} {
		if f.file == "" {
			missing = append(missing, f.name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s: missing: the three --tls- flags belong together", strings.Join(missing, ", "))
	}
	return nil
}

// flags are those of a verb that prints.
func (c *console) flags(cmd *cobra.Command) {
	c.connection(cmd)
	cmd.PersistentFlags().StringVarP(&c.output, "output", "o", "table", "table or json")
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error {
		if c.output != "table" && c.output != "json" {
			return fmt.Errorf("--output: %q is neither table nor json", c.output)
		}
		return nil
	}
}

// connection is the flags that say where to ask.
func (c *console) connection(cmd *cobra.Command) {
	addr := os.Getenv("SLUICE_ADMIN_ADDR")
	if addr == "" {
		addr = defaultAddr
	}
	cmd.PersistentFlags().StringVar(&c.addr, "addr", addr, "admin API of any node (or SLUICE_ADMIN_ADDR)")
	cmd.PersistentFlags().DurationVar(&c.leaderWait, "leader-wait", leaderWait, "how long to ask again what was not done for want of a leader")
	for _, f := range [...]struct {
		to              *string
		name, env, what string
	}{
		{&c.tls.CA, "tls-ca", "SLUICE_ADMIN_TLS_CA", "PEM file of the authority that signs all certificates"},
		{&c.tls.Cert, "tls-cert", "SLUICE_ADMIN_TLS_CERT", "PEM file of the operator's certificate"},
		{&c.tls.Key, "tls-key", "SLUICE_ADMIN_TLS_KEY", "PEM file of its private key"},
	} {
		cmd.PersistentFlags().StringVar(f.to, f.name, os.Getenv(f.env), f.what+" (or "+f.env+")")
	}
}

const (
	// askWait is how long one call may take; a node answers within its own 10 s or says why not.
	askWait = 30 * time.Second
	// leadersMax is how often the leader that a refusal names is asked: one that hands over names the next.
	leadersMax = 3
	// leaderWait is how long a verb asks again, unless it is told otherwise: a leader is elected in two seconds.
	leaderWait = 5 * time.Second
	// leaderAskEvery is how often.
	leaderAskEvery = 200 * time.Millisecond
)

// ask makes one call, of the leader where that is needed.
func ask[Req, Resp any](ctx context.Context, c *console,
	call func(adminv1connect.AdminServiceClient, context.Context, *connect.Request[Req]) (*connect.Response[Resp], error), msg *Req,
) (*Resp, error) {
	var resp *connect.Response[Resp]
	err := c.onLeader(ctx, func(client adminv1connect.AdminServiceClient) (err error) {
		ctx, cancel := context.WithTimeout(ctx, askWait)
		defer cancel()
		resp, err = call(client, ctx, connect.NewRequest(msg))
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

// onLeader calls a node, and the leader that its refusal names. What was not done for want of a leader is asked again.
func (c *console) onLeader(ctx context.Context, call func(adminv1connect.AdminServiceClient) error) error {
	waiting, cancel := context.WithTimeout(ctx, c.leaderWait)
	defer cancel()
	addr := c.addr
	for tries := 0; ; {
		client, err := c.client(addr)
		if err != nil {
			return err
		}
		err = call(client)
		var ce *connect.Error
		if !errors.As(err, &ce) {
			return err
		}
		leader := ce.Meta().Get(api.LeaderHeader)
		switch {
		case leader != "" && tries < leadersMax:
			addr = leader
			tries++
		case ce.Code() == connect.CodeUnavailable && ce.Meta().Get(api.RetryHeader) != "" && wait(waiting, leaderAskEvery):
			addr, tries = c.addr, 0
		default:
			return c.explainCall(ctx, addr, ce)
		}
	}
}

// wait reports whether a time has passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// explainCall says why a call failed, and whether it may have been done all the same.
func (c *console) explainCall(ctx context.Context, addr string, ce *connect.Error) error {
	where := addr + " (--addr or SLUICE_ADMIN_ADDR)"
	if addr != c.addr {
		where = addr + ", where " + c.addr + " says the leader is"
	}
	var transport *url.Error
	reason := ce.Message()
	if errors.As(ce, &transport) {
		reason = transport.Err.Error()
	}
	switch {
	case strings.HasSuffix(reason, http400) && c.tls == (quotad.TLSFiles{}):
		return fmt.Errorf("%s speaks TLS: --tls-ca, --tls-cert and --tls-key are needed", addr)
	case strings.HasSuffix(reason, http400):
		return fmt.Errorf("%s speaks TLS: write it with https://, or as host:port", addr)
	case connect.IsWireError(ce) && ce.Message() != "":
		return refusal{ce}
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%w: %s", errInterrupted, perhapsDone)
	case ce.Code() == connect.CodeDeadlineExceeded:
		return fmt.Errorf("no answer from %s in %s: %s", where, askWait, perhapsDone)
	case broken(ce):
		return fmt.Errorf("the connection broke to %s: %s", where, perhapsDone)
	case !errors.As(ce, new(*net.OpError)) && !strings.Contains(reason, "tls: ") && !strings.HasPrefix(reason, "http: server gave"):
		reason = "what is there is not quotad's admin API" // the rest is net/http's surprise
	}
	return fmt.Errorf("no quotad answers at %s: %s", where, reason)
}

const perhapsDone = "what was asked may or may not have been done"

// broken reports whether a call was under way when its connection ended.
func broken(ce *connect.Error) bool {
	for _, end := range [...]error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(ce, end) {
			return true
		}
	}
	return ce.Code() == connect.CodeCanceled // not by us
}

// http400 is what is left of a TLS server's answer to plain HTTP.
const http400 = "400 Bad Request"

// refusal is a server's no: people read its message, the verbs its code.
type refusal struct{ of *connect.Error }

func (r refusal) Error() string { return r.of.Message() }
func (r refusal) Unwrap() error { return r.of }

// print writes a message as JSON, or as the table drawn by table.
func (c *console) print(w io.Writer, m proto.Message, table func(*tabwriter.Writer)) error {
	if c.output == "json" {
		b, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
		if err != nil {
			return err
		}
		var v any // protojson varies its spaces on purpose: scripts should not have to mind
		if err := json.Unmarshal(b, &v); err != nil {
			return err
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	table(t)
	return t.Flush()
}

func row(w io.Writer, cells ...string) {
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

func num(n int64) string { return strconv.FormatInt(n, 10) }

// dollars writes nano-dollars exactly, with at least two decimals.
func dollars(nano int64) string { return registry.Nano(nano).USD() }

// parseDollars reads a decimal number of dollars exactly into nano-dollars.
func parseDollars(s string) (int64, error) {
	const digitsMax = 9 // before the point, and after it
	text, negative := strings.CutPrefix(s, "-")
	whole, frac, _ := strings.Cut(strings.TrimPrefix(text, "$"), ".")
	switch {
	case whole == "" || strings.Trim(whole+frac, "0123456789") != "":
		return 0, fmt.Errorf("%q is not an amount in dollars such as 12.50", s)
	case len(frac) > digitsMax:
		return 0, fmt.Errorf("%q has more than %d decimals", s, digitsMax)
	case len(whole) > digitsMax:
		return 0, fmt.Errorf("%q is out of range: an amount has at most %d digits before the point", s, digitsMax)
	}
	n, err := strconv.ParseInt(whole+frac+strings.Repeat("0", digitsMax-len(frac)), 10, 64)
	if negative {
		n = -n
	}
	return n, err
}
