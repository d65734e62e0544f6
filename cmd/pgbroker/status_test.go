package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

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
