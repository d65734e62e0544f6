package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wantRun checks the exit code and that stderr has the given parts.
func wantRun(t *testing.T, r result, code int, parts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d; stderr %q", r.code, code, r.stderr)
	}
	for _, p := range parts {
		if !strings.Contains(r.stderr, p) {
			t.Errorf("stderr %q does not say %q", r.stderr, p)
		}
	}
}

// freePort returns an address where nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// silentListener accepts connections and never answers.
func silentListener(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
		}
	}()
	return l.Addr().String()
}

func TestUnreachableBrokers(t *testing.T) {
	one, two := freePort(t), freePort(t)
	start := time.Now()
	wantRun(t, runCmd(t, one+","+two, "", "topic", "list"), exitUnreachable, one, two, "connection refused", "-b")
	wantRun(t, runCmd(t, one, "x\n", "produce", "orders"), exitUnreachable, "connection refused")
	wantRun(t, runCmd(t, one, "", "consume", "orders"), exitUnreachable, "connection refused")
	wantRun(t, runCmd(t, one, "", "group", "lag", "g"), exitUnreachable, "connection refused")
	wantRun(t, runCmd(t, one, "", "status"), exitUnreachable, "connection refused")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("refused connections took %s to report", took)
	}
	wantRun(t, runCmd(t, silentListener(t), "", "topic", "list", "--timeout", "300ms"), exitUnreachable, "no answer", "300ms")

	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	wantRun(t, runCmd(t, web.Listener.Addr().String(), "", "topic", "list", "--timeout", "2s"), exitUnreachable)

	// A seed that is down does not matter while another one answers.
	mustRun(t, one+","+newCluster(t), "", "topic", "list")
}

// TestAdvertisedAddressDoesNotAnswer is the most common mistake with Kafka's listeners.
func TestAdvertisedAddressDoesNotAnswer(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	dialled, elsewhere := cluster.ListenAddrs()[0], freePort(t)
	host, port, _ := net.SplitHostPort(elsewhere)
	cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		broker := kmsg.NewMetadataResponseBroker()
		broker.NodeID, broker.Host = 7, host
		fmt.Sscan(port, &broker.Port)
		resp.Brokers, resp.ControllerID = append(resp.Brokers, broker), 7
		topic := kmsg.NewMetadataResponseTopic()
		name := "orders"
		topic.Topic, topic.TopicID = &name, [16]byte{1}
		partition := kmsg.NewMetadataResponseTopicPartition()
		partition.Leader, partition.Replicas, partition.ISR = 7, []int32{7}, []int32{7}
		topic.Partitions = append(topic.Partitions, partition)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	for _, args := range [][]string{{"consume", "orders"}, {"produce", "orders"}, {"topic", "describe", "orders"}, {"topic", "create", "x"}} {
		start := time.Now()
		r := runCmd(t, dialled, "x\n", args...)
		wantRun(t, r, exitUnreachable, "broker 7", dialled, elsewhere, "advertised.listeners", "connection refused")
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%v took %s to find out", args, took)
		}
	}
}

func TestAuthentication(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "admin", "right"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	addr := cluster.ListenAddrs()[0]
	mustRun(t, addr, "", "topic", "list", "-X", "user=admin", "-X", "pass=right")
	t.Setenv("PGBROKER_SASL_USER", "admin")
	t.Setenv("PGBROKER_SASL_MECHANISM", "scram-sha-256")
	mustRun(t, addr, "", "topic", "list", "-X", "pass=right")

	// This fake hangs up on wrong credentials, as a broker before Kafka 1.0 does.
	wantRun(t, runCmd(t, addr, "", "topic", "list", "-X", "pass=wrong"), exitUnreachable, "closes the connection", "-X user")
	// Kafka since 1.0 says why (KIP-152).
	cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := kreq.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return resp, nil, true
	})
	for _, args := range [][]string{{"topic", "list"}, {"consume", "orders"}, {"produce", "orders"}} {
		r := runCmd(t, addr, "x\n", append(args, "-X", "pass=wrong")...)
		wantRun(t, r, exitUnauthorized, "credentials", "SASL_AUTHENTICATION_FAILED", "-X user")
	}
}

func TestAuthorisationOfOneTopic(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	refused := map[string]bool{"secret": true, "hidden": true}
	cluster.ControlKey(int16(kmsg.CreateTopics), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := kreq.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, rt := range kreq.(*kmsg.CreateTopicsRequest).Topics {
			a := kmsg.NewCreateTopicsResponseTopic()
			a.Topic = rt.Topic
			if refused[rt.Topic] {
				a.ErrorCode = kerr.TopicAuthorizationFailed.Code
			}
			resp.Topics = append(resp.Topics, a)
		}
		return resp, nil, true
	})
	addr := cluster.ListenAddrs()[0]
	wantRun(t, runCmd(t, addr, "", "topic", "create", "secret", "hidden"), exitUnauthorized, "secret", "hidden", "TOPIC_AUTHORIZATION_FAILED")
	wantRun(t, runCmd(t, addr, "", "topic", "create", "open", "secret"), exitUnauthorized, "secret")
	mustRun(t, addr, "", "topic", "create", "open")
}

// signalWriter calls signal once when something is written.
type signalWriter struct {
	bytes.Buffer
	signal func()
	called atomic.Bool
}

func (w *signalWriter) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if w.called.CompareAndSwap(false, true) {
		w.signal()
	}
	return n, err
}

func TestInterruptedConsume(t *testing.T) {
	addr := newCluster(t, kfake.SeedTopics(1, "orders"))
	mustRun(t, addr, "one\n", "produce", "orders")
	for _, extra := range [][]string{nil, {"-g", "readers"}} {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		var stderr bytes.Buffer
		stdout := &signalWriter{signal: cancel}
		code := execute(ctx, append([]string{"consume", "orders", "--follow", "-b", addr}, extra...), strings.NewReader(""), stdout, &stderr)
		cancel()
		if code != exitInterrupted || stdout.String() != "one\n" || stderr.Len() > 0 {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", extra, code, stdout.String(), stderr.String())
		}
	}
	// What was printed before the signal is committed.
	if out := mustRun(t, addr, "", "group", "lag", "readers", "--partitions"); !strings.Contains(out, "orders  0          1          1    0") {
		t.Errorf("the interrupted member did not commit:\n%s", out)
	}
}

// TestInterruptedProduce interrupts while the input still is open: what was read is written.
func TestInterruptedProduce(t *testing.T) {
	addr := newCluster(t, kfake.SeedTopics(1, "orders"))
	in, feed := io.Pipe()
	defer feed.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	go func() {
		io.WriteString(feed, "one\ntwo\n")
		for endOffset(t, addr, "orders", 0) < 2 && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond) // between two questions to the broker
		}
		cancel()
	}()
	var stdout, stderr bytes.Buffer
	code := execute(ctx, []string{"produce", "orders", "-b", addr}, in, &stdout, &stderr)
	if code != exitInterrupted || !strings.Contains(stderr.String(), "interrupted; 2 records were acknowledged") {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
}

func TestLagInTime(t *testing.T) {
	addr := newCluster(t, kfake.SeedTopics(2, "orders"))
	hours := func(n int) time.Time { return time.Now().Add(-time.Duration(n) * time.Hour) }
	produceKgo(t, addr,
		&kgo.Record{Topic: "orders", Value: []byte("a"), Timestamp: hours(30)},
		&kgo.Record{Topic: "orders", Value: []byte("b"), Timestamp: hours(3)},
		&kgo.Record{Topic: "orders", Partition: 1, Value: []byte("c"), Timestamp: hours(2)})
	for group, offset := range map[string]string{"first": "start", "second": "+1", "third": "end"} {
		mustRun(t, addr, "", "group", "reset-offsets", group, "--to", offset, "--topic", "orders", "--allow-new-topics", "--execute", "-q")
	}
	mustRun(t, addr, "", "group", "reset-offsets", "second", "--to", "start", "--topic", "orders:1", "--execute", "-q")
	got := mustRun(t, addr, "", "group", "lag", "first", "second", "third")
	want := "GROUP   TOPIC   LAG  BEHIND\n" +
		"first   orders  3    1d6h\n" +
		"second  orders  2    3h\n" +
		"third   orders  0    0.0s\n"
	if got != want {
		t.Errorf("lag is\n%swant\n%s", got, want)
	}
	got = mustRun(t, addr, "", "group", "lag", "second", "--partitions")
	if !strings.Contains(got, "second  orders  0          1          2    1    3h      -") || !strings.Contains(got, "second  orders  1          0          1    1    2h      -") {
		t.Errorf("lag by partition is\n%s", got)
	}
}

func TestWatchedLag(t *testing.T) {
	addr := newCluster(t, kfake.SeedTopics(1, "orders"))
	mustRun(t, addr, "one\n", "produce", "orders")
	mustRun(t, addr, "", "consume", "orders", "-g", "readers")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var stderr bytes.Buffer
	stdout := &signalWriter{signal: cancel}
	code := execute(ctx, []string{"group", "lag", "readers", "-w", "-b", addr}, strings.NewReader(""), stdout, &stderr)
	if code != exitInterrupted || !strings.Contains(stdout.String(), "readers  orders  0") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
}

func TestOutputFromTheEnvironment(t *testing.T) {
	addr := newCluster(t, kfake.SeedTopics(1, "orders"))
	t.Setenv("PGBROKER_OUTPUT", "name")
	if got := mustRun(t, addr, "", "topic", "list"); got != "topic/orders\n" {
		t.Errorf("with PGBROKER_OUTPUT=name it prints %q", got)
	}
	if got := mustRun(t, addr, "", "topic", "list", "-o", "jsonl"); !strings.HasPrefix(got, "{") {
		t.Errorf("-o does not win over PGBROKER_OUTPUT: %q", got)
	}
	// The environment chooses no format of records.
	mustRun(t, addr, "one\n", "produce", "orders")
	if got := mustRun(t, addr, "", "consume", "orders"); got != "one\n" {
		t.Errorf("consume with PGBROKER_OUTPUT=name prints %q", got)
	}
	t.Setenv("PGBROKER_OUTPUT", "xml")
	wantRun(t, runCmd(t, addr, "", "topic", "list"), exitUsage, "xml")
}

func TestProduceTellsWhatWasAcknowledged(t *testing.T) {
	addr := newCluster(t, kfake.SeedTopics(1, "orders"))
	r := runCmd(t, addr, "small\n"+strings.Repeat("x", 5000)+"\nafter\n", "produce", "orders", "--max-message-bytes", "2000")
	wantRun(t, r, exitFailed, "line 2", "MESSAGE_TOO_LARGE", "acknowledged")
	if n := endOffset(t, addr, "orders", 0); n < 1 {
		t.Errorf("%d records were written, want the first", n)
	}
	// A broker that refuses every batch.
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	cluster.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return refuseProduce(kreq, kerr.TopicAuthorizationFailed.Code), nil, true
	})
	r = runCmd(t, cluster.ListenAddrs()[0], "a\nb\n", "produce", "orders")
	wantRun(t, r, exitUnauthorized, "line 1", "TOPIC_AUTHORIZATION_FAILED", "0 records were acknowledged")
}

func refuseProduce(kreq kmsg.Request, code int16) kmsg.Response {
	resp := kreq.ResponseKind().(*kmsg.ProduceResponse)
	for _, rt := range kreq.(*kmsg.ProduceRequest).Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = rt.Topic, rt.TopicID
		for _, rp := range rt.Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode = rp.Partition, code
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// TestProduceGivesUp has a broker that never acknowledges.
func TestProduceGivesUp(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	cluster.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return refuseProduce(kreq, kerr.NotEnoughReplicas.Code), nil, true // the client tries again
	})
	start := time.Now()
	r := runCmd(t, cluster.ListenAddrs()[0], "a\n", "produce", "orders", "--delivery-timeout", "500ms")
	wantRun(t, r, exitUnreachable, "no record was acknowledged for 500ms")
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s to give up", took)
	}
}

// TestConsumeNoticesSilence has a broker that stops answering fetches: records must not be
// missing with exit code 0.
func TestConsumeNoticesSilence(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	addr := cluster.ListenAddrs()[0]
	mustRun(t, addr, "one\n", "produce", "orders")
	cluster.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return nil, errors.New("hang up"), true
	})
	r := runCmd(t, addr, "", "consume", "orders", "--timeout", "1s")
	wantRun(t, r, exitUnreachable, "no answer to a fetch", "missing")
}

// TestConsumeEndsAtHoles reads a log whose last offsets hold no record for the reader.
func TestConsumeEndsAtHoles(t *testing.T) {
	addr := newCluster(t, kfake.SeedTopics(1, "orders"))
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID("t"), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	transact := func(value string, end kgo.TransactionEndTry) {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}
	transact("kept", kgo.TryCommit)
	transact("dropped", kgo.TryAbort)
	if got := mustRun(t, addr, "", "consume", "orders", "--read-committed"); got != "kept\n" {
		t.Errorf("read committed: %q", got)
	}
	if got := mustRun(t, addr, "", "consume", "orders"); got != "kept\ndropped\n" {
		t.Errorf("read uncommitted: %q", got)
	}
	// An open transaction: its records are beyond the last stable offset.
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, kgo.StringRecord("open")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if got := mustRun(t, addr, "", "consume", "orders", "--read-committed"); got != "kept\n" {
		t.Errorf("read committed beside an open transaction: %q", got)
	}
}

func TestStatusWaitReady(t *testing.T) {
	var questions atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			http.NotFound(w, r)
			return
		}
		if questions.Add(1) < 3 {
			http.Error(w, "postgres: starting\nup", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	addr := server.Listener.Addr().String()
	mustRun(t, "", "", "status", "--wait", "ready", "--for", "10s", "--http", addr)
	if n := questions.Load(); n != 3 {
		t.Errorf("it asked %d times, want 3", n)
	}
	questions.Store(-1000)
	wantRun(t, runCmd(t, "", "", "status", "--wait", "ready", "--for", "250ms", "--http", "http://"+addr), exitUnreachable,
		"not ready after 250ms", "503", "postgres: starting up")
	wantRun(t, runCmd(t, "", "", "status", "--wait", "ready", "--for", "100ms", "--http", freePort(t)), exitUnreachable, "connection refused")
	wantRun(t, runCmd(t, "", "", "status", "--wait", "ready", "--for", "200ms", "--http", silentListener(t)), exitUnreachable, "not ready after 200ms")
}

func TestStatusHealth(t *testing.T) {
	for _, tc := range []struct {
		name   string
		leader int32
		isr    []int32
		code   int
		health string
	}{
		{"all well", 0, []int32{0, 1}, exitOK, "ok"},
		{"out of sync", 0, []int32{0}, exitWarning, "warning"},
		{"no leader", -1, []int32{0}, exitCritical, "critical"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			host, port, _ := net.SplitHostPort(cluster.ListenAddrs()[0])
			cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				resp := req.ResponseKind().(*kmsg.MetadataResponse)
				broker := kmsg.NewMetadataResponseBroker()
				broker.Host = host
				fmt.Sscan(port, &broker.Port)
				resp.Brokers = append(resp.Brokers, broker)
				topic, name := kmsg.NewMetadataResponseTopic(), "orders"
				topic.Topic = &name
				partition := kmsg.NewMetadataResponseTopicPartition()
				partition.Leader, partition.Replicas, partition.ISR = tc.leader, []int32{0, 1}, tc.isr
				topic.Partitions = append(topic.Partitions, partition)
				resp.Topics = append(resp.Topics, topic)
				return resp, nil, true
			})
			r := runCmd(t, cluster.ListenAddrs()[0], "", "status", "-o", "json")
			wantRun(t, r, tc.code)
			if !strings.Contains(r.stdout, fmt.Sprintf("%q:%q", "health", tc.health)) {
				t.Errorf("stdout %s does not say %s", r.stdout, tc.health)
			}
		})
	}
}

func TestDynamicCompletion(t *testing.T) {
	addr := newCluster(t, kfake.SeedTopics(1, "orders", "refunds"))
	mustRun(t, addr, "one\n", "produce", "orders")
	mustRun(t, addr, "", "consume", "orders", "-g", "billing")
	complete := func(addr string, words ...string) string {
		t.Setenv("PGBROKER_BROKERS", addr)
		return runCmd(t, "", "", append([]string{"__complete"}, words...)...).stdout
	}
	for _, tc := range []struct{ words, want string }{
		{"topic describe r", "refunds\n:4\n"},
		{"consume o", "orders\n:4\n"},
		{"produce o", "orders\n:4\n"},
		{"produce orders r", ":4\n"},
		{"group lag b", "billing\n:4\n"},
		{"consume orders -g b", "billing\n:4\n"},
		{"topic list -o j", strings.Join(outputFormats, "\n") + "\n:4\n"}, // the shell filters
	} {
		if got := complete(addr, strings.Fields(tc.words)...); got != tc.want {
			t.Errorf("completion of %q is %q, want %q", tc.words, got, tc.want)
		}
	}
	start := time.Now()
	if got := complete(silentListener(t), "topic", "describe", ""); got != ":4\n" {
		t.Errorf("completion without an answer is %q", got)
	}
	if took := time.Since(start); took > 2*completionTime {
		t.Errorf("completion without an answer took %s", took)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if script := mustRun(t, "", "", "completion", shell); !strings.Contains(script, "pgbroker") {
			t.Errorf("the script for %s does not name pgbroker", shell)
		}
	}
}
