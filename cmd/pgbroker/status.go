package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

const statusLong = `Show the cluster: its id, brokers, and how many topics, partitions and groups it
has. The exit code is 10 when partitions have replicas that are out of sync, and
11 when partitions have no leader.

With --http it asks the HTTP address of one pgbroker instead: whether it is ready, or
a standby and what that waits for, or not ready and why. The exit code is 0 when it
is ready and 10 otherwise.

With --wait ready it asks http://ADDRESS/readyz of a pgbroker until the answer is
200, for at most --for, and ends with exit code 3 when it was not ready by then.
That is what health checks of containers call; it does not need the Kafka port.`

const statusExample = `  pgbroker status
  pgbroker status -o json
  pgbroker status --http 127.0.0.1:9404
  pgbroker status --wait ready --for 60s
  pgbroker status --wait ready --for 1s --http 127.0.0.1:9404`

const (
	defaultHTTP = "127.0.0.1:9404"
	// readyPause is the time between two questions whether the broker is ready.
	readyPause = 100 * time.Millisecond
	// maxReadyAnswer bounds what is read of an answer that says why the broker is not ready.
	maxReadyAnswer = 4 << 10
)

// clusterStatus is the cluster in JSON.
type clusterStatus struct {
	ClusterID       string         `json:"cluster_id"`
	Controller      int32          `json:"controller"` // -1: none
	Brokers         []brokerStatus `json:"brokers"`
	Topics          int            `json:"topics"` // without internal ones
	InternalTopics  int            `json:"internal_topics"`
	Partitions      int            `json:"partitions"`
	NoLeader        int            `json:"partitions_without_leader"`
	UnderReplicated int            `json:"partitions_under_replicated"`
	Groups          int            `json:"groups"`
	Health          string         `json:"health"` // ok, warning, critical
}

type brokerStatus struct {
	ID      int32  `json:"id"`
	Address string `json:"address"`
	Rack    string `json:"rack,omitempty"`
}

func (s clusterStatus) resourceName() string { return "cluster/" + s.ClusterID }

func newStatusCmd(g *globals) *cobra.Command {
	var wait, httpAddress string
	var patience time.Duration
	cmd := &cobra.Command{
		Use:               "status",
		Short:             "Show the cluster, or wait until a pgbroker is ready",
		Long:              statusLong,
		Example:           statusExample,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait != "" {
				if wait != "ready" {
					return usagef("--wait %q: the only state to wait for is ready", wait)
				}
				if patience <= 0 {
					return usagef("--for %s is not positive; give a duration like 60s", patience)
				}
				return waitReady(cmd.Context(), httpAddress, patience)
			}
			if cmd.Flags().Changed("for") {
				return usagef("--for goes with --wait ready")
			}
			if cmd.Flags().Changed("http") {
				return g.processStatus(cmd, httpAddress)
			}
			c, err := g.connect(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			return c.status(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&wait, "wait", "", "wait for this `state`: ready")
	cmd.Flags().DurationVar(&patience, "for", 60*time.Second, "how long to wait")
	cmd.Flags().StringVar(&httpAddress, "http", defaultHTTP, "`address` of the pgbroker's HTTP listener (http.listen)")
	_ = cmd.RegisterFlagCompletionFunc("wait", cobra.FixedCompletions([]string{"ready"}, cobra.ShellCompDirectiveNoFileComp))
	addOutputFlag(cmd, g)
	return cmd
}

// waitReady asks until the broker is ready. It returns an error with exit code 3 when it is not
// within the given time.
func waitReady(ctx context.Context, address string, patience time.Duration) error {
	url, err := readyURL(address)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// No proxy and no reuse of connections: the broker may be restarting.
	httpClient := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	last := errors.New("no answer")
	for {
		err := askReady(bounded, httpClient, url)
		if err == nil {
			return nil
		}
		if bounded.Err() == nil || !errors.Is(err, bounded.Err()) {
			last = err
		}
		select {
		case <-bounded.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return unreachablef("%s is not ready after %s: %w", url, patience, last)
		case <-time.After(readyPause):
		}
	}
}

func readyURL(address string) (string, error) {
	if strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://") {
		return strings.TrimSuffix(address, "/") + "/readyz", nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return "", usagef("--http %q is not host:port; give an address like %s", address, defaultHTTP)
	}
	if host == "" || host == "0.0.0.0" || host == "::" {
		host = "127.0.0.1" // an address to listen on, not one to dial
	}
	return "http://" + net.JoinHostPort(host, port) + "/readyz", nil
}

// askReady asks once.
func askReady(ctx context.Context, httpClient *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && !op.Timeout() {
			return op
		}
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxReadyAnswer))
	reason := strings.Join(strings.Fields(string(body)), " ")
	return &notReadyError{resp.Status, reason}
}

// processState is one process in JSON.
type processState struct {
	Address string `json:"address"`
	State   string `json:"state"` // ready, standby, not ready
	Reason  string `json:"reason,omitempty"`
}

func (s processState) resourceName() string { return "process/" + s.Address }

// processStatus shows what one process says of itself. It does not need the Kafka port, which a standby does not have.
func (g *globals) processStatus(cmd *cobra.Command, address string) error {
	url, err := readyURL(address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), g.timeout)
	defer cancel()
	s := processState{Address: address, State: "ready"}
	var not *notReadyError
	switch err := askReady(ctx, &http.Client{}, url); {
	case errors.As(err, &not):
		s.State, s.Reason = "not ready", not.reason
		if reason, ok := strings.CutPrefix(not.reason, "standby: "); ok {
			s.State, s.Reason = "standby", reason
		}
	case err != nil:
		return unreachablef("status of %s: %w", url, err)
	}
	doc := document{kind: "ProcessStatus", items: []item{s}, table: func(w io.Writer, _ bool) {
		t := newTable("PROCESS", "STATE", "REASON")
		t.row(s.Address, s.State, s.Reason)
		t.write(w)
	}}
	if err := doc.write(cmd.OutOrStdout(), g.output); err != nil {
		return err
	}
	if not != nil {
		return &exitError{code: exitWarning}
	}
	return nil
}

// notReadyError is an answer that is not 200, with what it says.
type notReadyError struct{ status, reason string }

func (e *notReadyError) Error() string { return fmt.Sprintf("it answers %s: %s", e.status, e.reason) }

func (c *client) status(w io.Writer) error {
	ctx, cancel := c.bounded()
	defer cancel()
	meta, err := c.adm.Metadata(ctx)
	if err != nil {
		return fmt.Errorf("status: %w", c.explain(err))
	}
	groups, err := c.adm.ListGroups(ctx)
	if err != nil {
		return fmt.Errorf("status: list groups: %w", c.explain(err))
	}
	s := newClusterStatus(meta, len(groups))
	doc := document{kind: "ClusterStatus", items: []item{s}, table: func(w io.Writer, _ bool) { writeStatus(w, s) }}
	if err := doc.write(w, c.g.output); err != nil {
		return err
	}
	switch s.Health {
	case "critical":
		return &exitError{exitCritical, fmt.Errorf("%s no leader; records of them can be neither read nor written", haveVerb(s.NoLeader, "partition"))}
	case "warning":
		return &exitError{exitWarning, fmt.Errorf("%s replicas out of sync", haveVerb(s.UnderReplicated, "partition"))}
	}
	return nil
}

// haveVerb is "1 topic has" or "3 topics have".
func haveVerb(n int, noun string) string {
	if n == 1 {
		return plural(n, noun) + " has"
	}
	return plural(n, noun) + " have"
}

func newClusterStatus(meta kadm.Metadata, groups int) clusterStatus {
	s := clusterStatus{ClusterID: meta.Cluster, Controller: meta.Controller, Brokers: []brokerStatus{}, Groups: groups, Health: "ok"}
	for _, b := range meta.Brokers {
		rack := ""
		if b.Rack != nil {
			rack = *b.Rack
		}
		s.Brokers = append(s.Brokers, brokerStatus{b.NodeID, net.JoinHostPort(b.Host, fmt.Sprint(b.Port)), rack})
	}
	for _, t := range meta.Topics {
		if t.IsInternal {
			s.InternalTopics++
		} else {
			s.Topics++
		}
		for _, p := range t.Partitions {
			s.Partitions++
			if p.Leader < 0 {
				s.NoLeader++
			}
			if len(p.ISR) < len(p.Replicas) {
				s.UnderReplicated++
			}
		}
	}
	if s.UnderReplicated > 0 {
		s.Health = "warning"
	}
	if s.NoLeader > 0 {
		s.Health = "critical"
	}
	return s
}

func writeStatus(w io.Writer, s clusterStatus) {
	t := newTable("CLUSTER", "HEALTH", "BROKERS", "TOPICS", "PARTITIONS", "GROUPS")
	t.row(s.ClusterID, s.Health, count(len(s.Brokers)), count(s.Topics), count(s.Partitions), count(s.Groups))
	t.write(w)
	fmt.Fprintln(w)
	brokers := newTable("BROKER", "ADDRESS", "RACK", "ROLE")
	for _, b := range s.Brokers {
		role := ""
		if b.ID == s.Controller {
			role = "controller"
		}
		brokers.row(fmt.Sprint(b.ID), b.Address, b.Rack, role)
	}
	brokers.write(w)
}
