package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const defaultBroker = "127.0.0.1:9092"

// client is one command's connection to a cluster.
type client struct {
	*kgo.Client
	adm   *kadm.Client
	watch *dialWatch
	g     *globals
	// run is cancelled by a signal, or with its cause once it is certain that no broker can be
	// reached. It has no deadline; see bounded.
	run context.Context
}

// connect makes the client of a command. It does not dial: the first request does.
func (g *globals) connect(cmd *cobra.Command, opts ...kgo.Opt) (*client, error) {
	seeds, err := seedAddresses(g.brokers)
	if err != nil {
		return nil, err
	}
	base, err := g.clientOpts(seeds)
	if err != nil {
		return nil, err
	}
	run, cancel := context.WithCancelCause(cmd.Context())
	watch := &dialWatch{seeds: seeds, cancel: cancel, failed: map[string]error{}, away: map[int32]bool{}}
	if g.verbose {
		base = append(base, kgo.WithLogger(kgo.BasicLogger(cmd.ErrOrStderr(), kgo.LogLevelInfo, nil)))
	}
	base = append(base, kgo.WithHooks(watch))
	kcl, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		cancel(nil)
		return nil, usagef("client settings: %w; see -X list", err)
	}
	watch.discovered = kcl.DiscoveredBrokers
	adm := kadm.NewClient(kcl)
	adm.SetTimeoutMillis(int32(min(g.timeout.Milliseconds(), 1<<30)))
	return &client{Client: kcl, adm: adm, watch: watch, g: g, run: run}, nil
}

// close ends the client and whatever still waits for its context.
func (c *client) close() {
	c.watch.cancel(nil)
	c.Client.Close()
}

// bounded returns a context for requests that must be answered within --timeout.
func (c *client) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.run, c.g.timeout)
}

// seedAddresses checks -b and gives addresses without a port the one of Kafka.
func seedAddresses(brokers []string) ([]string, error) {
	var seeds []string
	for _, b := range unique(brokers) {
		b = strings.TrimSpace(b)
		if b == "" {
			continue
		}
		if i := strings.Index(b, "://"); i >= 0 {
			return nil, usagef("-b %q is a URL; give host:port, like %s", b, defaultBroker)
		}
		host, port, err := net.SplitHostPort(b)
		if err != nil {
			host, port = strings.Trim(b, "[]"), "9092"
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
			return nil, usagef("-b %q is not host:port; give an address like %s", b, defaultBroker)
		}
		seeds = append(seeds, net.JoinHostPort(host, port))
	}
	if len(seeds) == 0 {
		return nil, usagef("-b names no broker; give host:port, like %s", defaultBroker)
	}
	return seeds, nil
}

// dialWatch follows the client's attempts to connect and cancels the command as soon as they
// show that it cannot succeed: no seed answers, the credentials are refused, or no broker answers
// at the address it advertises.
type dialWatch struct {
	seeds      []string
	cancel     context.CancelCauseFunc
	discovered func() []*kgo.Broker

	mu         sync.Mutex
	failed     map[string]error // address → last dial error
	away       map[int32]bool   // brokers that did not answer at their advertised address
	seedUp     bool             // some seed has answered
	advertised bool             // some broker has answered at its advertised address
}

// OnBrokerConnect is called by kgo after each attempt. Seed brokers have negative ids.
func (d *dialWatch) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	addr := net.JoinHostPort(meta.Host, strconv.Itoa(int(meta.Port)))
	isSeed := meta.NodeID < 0
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		delete(d.failed, addr)
		d.seedUp = d.seedUp || isSeed
		d.advertised = d.advertised || !isSeed
	case errors.Is(err, context.Canceled):
	case isAuthError(err):
		d.cancel(&exitError{exitUnauthorized, fmt.Errorf("broker %s refused the credentials: %w; check -X user, pass and sasl.mechanism", addr, err)})
	case isSeed:
		d.failed[addr] = err
		if !d.seedUp && !d.advertised && len(d.failed) == len(d.seeds) {
			d.cancel(d.seedError(err))
		}
	default:
		d.failed[addr] = err
		d.away[meta.NodeID] = true
		if !d.advertised && !slices.Contains(d.seeds, addr) && len(d.away) >= len(d.discovered()) {
			d.cancel(d.advertisedError(meta, addr, err))
		}
	}
}

func (d *dialWatch) seedError(err error) error {
	if errors.Is(err, io.EOF) {
		return unreachablef("%s closes the connection; it wants TLS (-X tls.enabled=true) or other credentials (-X user), or is no Kafka listener", strings.Join(d.seeds, ","))
	}
	return unreachablef("no broker answers at %s: %w; start one with \"pgbroker dev\" or name one with -b", strings.Join(d.seeds, ","), dialReason(err))
}

func (d *dialWatch) advertisedError(meta kgo.BrokerMetadata, addr string, err error) error {
	return unreachablef("broker %d answers at %s but tells clients to use %s, which does not answer from here: %w; set advertised.listeners of the broker to an address that clients can reach",
		meta.NodeID, strings.Join(d.seeds, ","), addr, dialReason(err))
}

// dialReason cuts what the client wraps around the operating system's reason.
func dialReason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		if op.Timeout() {
			return errors.New("no answer in time")
		}
		return op.Err
	}
	return err
}

// explain turns the error of a request into one that says what to do.
func (c *client) explain(err error) error {
	if err == nil {
		return nil
	}
	var cause *exitError
	if errors.As(context.Cause(c.run), &cause) {
		return cause
	}
	var fixed *exitError
	if errors.As(err, &fixed) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		c.watch.mu.Lock()
		defer c.watch.mu.Unlock()
		for addr, dialErr := range c.watch.failed {
			return unreachablef("no answer within %s; the last try to reach %s ended with: %w", c.g.timeout, addr, dialReason(dialErr))
		}
		return unreachablef("no answer from %s within %s; is it a Kafka listener? A longer --timeout may help", strings.Join(c.watch.seeds, ","), c.g.timeout)
	}
	return err
}

// topicError words an error about a topic, with the nearest existing name when it is unknown.
func (c *client) topicError(ctx context.Context, topic string, err error, message string) error {
	if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) {
		text := fmt.Sprintf("topic %q does not exist", topic)
		if all, listErr := c.adm.ListTopics(ctx); listErr == nil {
			// The client remembers topics that it asked for in vain.
			names := slices.DeleteFunc(all.Names(), func(n string) bool { return all[n].Err != nil })
			if near := nearest(topic, names); near != "" {
				text += fmt.Sprintf(" (did you mean %q?)", near)
			}
		}
		return &describedError{text, err}
	}
	return kafkaError(fmt.Sprintf("topic %q", topic), c.explain(err), message)
}

// nearest returns the candidate with the fewest edits from name, at most a third of its length
// and never more than three, or "".
func nearest(name string, candidates []string) string {
	best, bestDistance := "", min(3, max(1, len(name)/3))+1
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(name), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions, replacements and swaps of neighbours that make
// b of a (optimal string alignment).
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
