package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	"github.com/sluice-gateway/sluice/quotad"
	"github.com/sluice-gateway/sluice/quotad/internal/api"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
)

const defaultAddr = "127.0.0.1:7072"

// console is what the verbs share: where to ask, and how to print.
type console struct {
	addr, output string
	tls          quotad.TLSFiles // all empty: no TLS
}

// client makes a client of a node's admin API. A host:port alone gets the scheme that goes with the TLS flags.
func (c *console) client(addr string) (adminv1connect.AdminServiceClient, error) {
	hc, scheme := http.DefaultClient, "http://"
	if c.tls != (quotad.TLSFiles{}) {
		var err error
		if hc, err = c.tls.HTTPClient(); err != nil {
			return nil, err
		}
		scheme = "https://"
	}
	if !strings.Contains(addr, "://") {
		addr = scheme + addr
	}
	return adminv1connect.NewAdminServiceClient(hc, addr), nil
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

// ask makes one call. A follower's refusal names the leader, which is then asked, once.
func ask[Req, Resp any](ctx context.Context, c *console,
	call func(adminv1connect.AdminServiceClient, context.Context, *connect.Request[Req]) (*connect.Response[Resp], error), msg *Req,
) (*Resp, error) {
	client, err := c.client(c.addr)
	if err != nil {
		return nil, err
	}
	resp, err := call(client, ctx, connect.NewRequest(msg))
	var ce *connect.Error
	if errors.As(err, &ce) {
		if leader := ce.Meta().Get(api.LeaderHeader); leader != "" {
			if client, err = c.client(leader); err != nil {
				return nil, err
			}
			resp, err = call(client, ctx, connect.NewRequest(msg))
		}
	}
	if errors.As(err, &ce) {
		return nil, c.explainCall(ce)
	}
	if err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

// explainCall says why a call failed.
func (c *console) explainCall(ce *connect.Error) error {
	switch {
	case !connect.IsWireError(ce) && c.tls == (quotad.TLSFiles{}) && ce.Message() == http400:
		return fmt.Errorf("%s speaks TLS: --tls-ca, --tls-cert and --tls-key are needed", c.addr)
	case !connect.IsWireError(ce) && ce.Code() == connect.CodeUnavailable:
		return fmt.Errorf("no quotad answers at %s (--addr or SLUICE_ADMIN_ADDR): %s", c.addr, ce.Message())
	}
	return refusal{ce}
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
	bad := fmt.Errorf("%q is not an amount in dollars such as 12.50, with at most 9 decimals", s)
	text, negative := strings.CutPrefix(s, "-")
	whole, frac, _ := strings.Cut(strings.TrimPrefix(text, "$"), ".")
	if whole == "" || len(frac) > 9 || len(whole) > 9 {
		return 0, bad
	}
	n, err := strconv.ParseUint(whole+frac+strings.Repeat("0", 9-len(frac)), 10, 63)
	if err != nil {
		return 0, bad
	}
	if negative {
		return -int64(n), nil
	}
	return int64(n), nil
}
