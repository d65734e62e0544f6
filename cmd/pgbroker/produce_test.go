package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

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
