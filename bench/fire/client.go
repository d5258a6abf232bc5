package fire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

const (
	// answerWait is how long one node may take to answer before another is asked.
	answerWait = time.Second
	againAfter = 20 * time.Millisecond
	messageMax = 64 << 20
)

// Client is one process on the sidecar plane: as much of it as a test needs, without a promise to be honest. It is used
// by one goroutine and must be closed.
type Client struct {
	Identity    string
	Incarnation uint64
	Nodes       []string // where to dial each node
	Follow      bool     // go where a node says that the leader is

	// Told hears of everything the node sends; nil for nobody.
	Told func(*quotav1.SessionResponse)

	next   int    // node to ask
	hint   string // or, once, who is said to lead
	conn   *grpc.ClientConn
	stream grpc.BidiStreamingClient[quotav1.SessionRequest, quotav1.SessionResponse]
	cancel context.CancelFunc
}

// Close ends the session.
func (c *Client) Close() {
	if c.conn != nil {
		c.cancel()
		_ = c.conn.Close()
		c.conn = nil
	}
}

// Renew sends r, the same bytes again and again, until it is answered or ctx ends: then its outcome is unknown.
func (c *Client) Renew(ctx context.Context, r *quotav1.Renew) (*quotav1.RenewReply, error) {
	m, err := c.until(ctx, &quotav1.SessionRequest{Message: &quotav1.SessionRequest_Renew{Renew: r}},
		func(m *quotav1.SessionResponse) bool {
			return m.GetRenewReply() != nil && m.GetRenewReply().GetSeq() == r.GetSeq()
		})
	return m.GetRenewReply(), err
}

// Snapshot connects anew and returns the configuration that quotad sends.
func (c *Client) Snapshot(ctx context.Context) (*quotav1.Snapshot, error) {
	c.Close()
	m, err := c.until(ctx, nil, func(m *quotav1.SessionResponse) bool { return m.GetSnapshot() != nil })
	return m.GetSnapshot(), err
}

func (c *Client) until(ctx context.Context, send *quotav1.SessionRequest, answers func(*quotav1.SessionResponse) bool) (*quotav1.SessionResponse, error) {
	var last error
	for ctx.Err() == nil {
		m, err := c.try(ctx, send, answers)
		if err == nil {
			return m, nil
		}
		last = err
		c.Close()
		c.next++
		if c.hint = ""; c.Follow {
			c.hint = leaderOf(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(againAfter):
		}
	}
	return nil, errors.Join(ctx.Err(), last)
}

// Once asks the node that is its turn, once, and gives up after a second.
func (c *Client) Once(ctx context.Context, r *quotav1.Renew) (*quotav1.RenewReply, error) {
	m, err := c.try(ctx, &quotav1.SessionRequest{Message: &quotav1.SessionRequest_Renew{Renew: r}},
		func(m *quotav1.SessionResponse) bool {
			return m.GetRenewReply() != nil && m.GetRenewReply().GetSeq() == r.GetSeq()
		})
	return m.GetRenewReply(), err
}

func (c *Client) try(ctx context.Context, send *quotav1.SessionRequest, answers func(*quotav1.SessionResponse) bool) (*quotav1.SessionResponse, error) {
	if c.conn == nil {
		if err := c.connect(); err != nil {
			return nil, err
		}
	}
	late := time.AfterFunc(answerWait, c.cancel)
	defer late.Stop()
	defer context.AfterFunc(ctx, c.cancel)()
	if send != nil {
		if err := c.stream.Send(send); err != nil {
			_, rerr := c.stream.Recv()
			return nil, errors.Join(err, rerr)
		}
	}
	for {
		m, err := c.stream.Recv()
		if err != nil {
			return nil, err
		}
		if c.Told != nil {
			c.Told(m)
		}
		if answers(m) {
			return m, nil
		}
	}
}

// leaderOf is who a node says leads.
func leaderOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if n, ok := d.(*quotav1.NotLeader); ok {
			return n.GetLeaderAddress()
		}
	}
	return ""
}

func (c *Client) connect() error {
	address := cmp.Or(c.hint, c.Nodes[c.next%len(c.Nodes)])
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableRetry(), grpc.WithNoProxy(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageMax)))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.conn, c.cancel = conn, cancel
	// Who is cut off must find out before the next answer is late.
	defer time.AfterFunc(answerWait, cancel).Stop()
	if c.stream, err = quotav1.NewQuotaServiceClient(conn).Session(ctx); err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	hello := &quotav1.Hello{Identity: c.Identity, Incarnation: c.Incarnation, Build: "fire"}
	return c.stream.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_Hello{Hello: hello}})
}
