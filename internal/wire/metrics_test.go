package wire

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// series is one sample by its name and labels, as Prometheus prints it.
func series(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = value(m)
		}
	}
	return out
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount())
	}
	return m.Gauge.GetValue()
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		slow := func(_ context.Context, req *Request, done Done) {
			req.Conn.SetSoftware("lib", "1.2")
			time.AfterFunc(40*time.Millisecond, func() { done(Response{Msg: req.Body.ResponseKind()}, nil) })
		}
		registry, err := NewRegistry([]API{heartbeatAPI, {Key: 1, Min: 4, Max: 12, Handle: slow}})
		if err != nil {
			t.Fatal(err)
		}
		s := NewServer(Options{Registry: registry, Registerer: reg, Log: slog.New(slog.DiscardHandler)})
		served := make(chan error)
		go func() { served <- s.Serve(context.WithoutCancel(t.Context())) }()
		synctest.Wait()
		dial := func() *client {
			server, c := net.Pipe()
			s.admit("PIPE", server)
			return &client{t, c}
		}
		c, hostile := dial(), dial()
		for range 10 {
			c.send(requestFrame(1, nil, fetch())...)
			c.reply()
		}
		follower := fetch()
		follower.ReplicaID = 2
		c.send(requestFrame(1, nil, follower)...)
		c.reply()
		c.send(requestFrame(1, nil, heartbeat("g"))...)
		c.reply()
		hostile.send(0xff, 0xff, 0xff, 0xff)
		hostile.closedByServer()
		synctest.Wait()
		got := series(t, reg)
		for name, want := range map[string]float64{
			"kafka_network_requestmetrics_requests_total{request=Fetch,version=12}":                 10,
			"kafka_network_requestmetrics_requests_total{request=FetchConsumer,version=12}":         10,
			"kafka_network_requestmetrics_requests_total{request=FetchFollower,version=12}":         1,
			"kafka_network_requestmetrics_requests_total{request=Heartbeat,version=4}":              1,
			"kafka_network_requestmetrics_errors_total{error=NONE,request=Heartbeat}":               1,
			"kafka_network_requestmetrics_totaltimems_count{request=Fetch}":                         10,
			"kafka_network_requestmetrics_totaltimems_sum{request=Fetch}":                           400,
			"kafka_network_requestmetrics_localtimems_sum{request=Fetch}":                           400,
			"kafka_network_requestmetrics_requestqueuetimems_sum{request=Fetch}":                    0,
			"kafka_server_socket_server_metrics_connection_count{listener=PIPE,networkProcessor=0}": 1,
			"pgbroker_limit_used{limit=max.connections}":                                            1,
			"pgbroker_limit_max{limit=queued.max.request.bytes}":                                    DefaultQueuedBytes,
			"pgbroker_limit_rejections_total{limit=socket.request.max.bytes}":                       1,
			"pgbroker_limit_rejections_total{limit=connections.max.idle.ms}":                        0,
			"pgbroker_request_duration_seconds{api=Fetch}":                                          10,
			"kafka_server_socket_server_metrics_connections_software{clientSoftwareName=lib," +
				"clientSoftwareVersion=1.2,listener=PIPE,networkProcessor=0}": 1,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %v (%v), want %v", name, v, ok, want)
			}
		}
		for _, q := range quantileLabels {
			name := "kafka_network_requestmetrics_totaltimems{quantile=" + q + ",request=Fetch}"
			if v := got[name]; math.Abs(v-40) > 5 {
				t.Errorf("%s is %v, want about 40", name, v)
			}
		}
		time.Sleep(71 * time.Second) // the window has passed, the totals stay
		got = series(t, reg)
		if v, ok := got["kafka_network_requestmetrics_totaltimems{quantile=0.99,request=Fetch}"]; !ok || v != 0 {
			t.Errorf("after a quiet minute the quantile is %v", v)
		}
		if v := got["kafka_network_requestmetrics_totaltimems_count{request=Fetch}"]; v != 10 {
			t.Errorf("after a quiet minute the count is %v", v)
		}
		s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// A client may call itself anything; the series stay few.
func TestSoftwareSeriesAreBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	registry, _ := NewRegistry([]API{heartbeatAPI})
	s := NewServer(Options{Registry: registry, Registerer: reg})
	for i := range 3 * maxSoftware {
		c := Detached(t.Context(), "L", nil)
		c.SetSoftware("lib", time.Duration(i).String())
		s.conns[c] = struct{}{}
	}
	n, others := 0, 0.0
	for name, v := range series(t, reg) {
		if strings.HasPrefix(name, "kafka_server_socket_server_metrics_connections_software") {
			n++
			if strings.Contains(name, "clientSoftwareName=other") {
				others = v
			}
		}
	}
	if n != maxSoftware+1 || others != 2*maxSoftware {
		t.Errorf("%d series, %v connections under other", n, others)
	}
}

// Quantiles are within an eighth of the true ones, whatever the spread.
func TestWindowQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var w window
	var all []time.Duration
	for range 5000 {
		d := time.Duration(math.Exp(rng.Float64()*16)) * time.Microsecond
		all = append(all, d)
		w.add(d, 5*time.Second)
	}
	slices.Sort(all)
	s := w.read(6*time.Second, quantiles)
	for i, q := range quantiles {
		want := all[int(q*float64(len(all)-1))]
		if off := math.Abs(float64(s.quantiles[i]-want)) / float64(want); off > 0.13 && s.quantiles[i]-want > time.Microsecond {
			t.Errorf("quantile %v is %v, want %v", q, s.quantiles[i], want)
		}
	}
}

func TestWindowForgets(t *testing.T) {
	var w window
	w.add(time.Second, 0)
	w.add(time.Millisecond, 35*time.Second)
	median := func(at time.Duration) time.Duration { return w.read(at, []float64{1}).quantiles[0] }
	if d := median(59 * time.Second); d < 900*time.Millisecond {
		t.Errorf("after 59 s the second is forgotten: %v", d)
	}
	if d := median(61 * time.Second); d > 2*time.Millisecond || d == 0 {
		t.Errorf("after 61 s the largest is %v", d)
	}
	if d := median(10 * time.Minute); d != 0 {
		t.Errorf("after ten minutes the largest is %v", d)
	}
	w.add(time.Millisecond, 11*time.Minute)
	if s := w.read(11*time.Minute, []float64{0.5}); s.count != 3 || s.sum != time.Second+2*time.Millisecond || s.quantiles[0] == 0 {
		t.Errorf("%+v", s)
	}
	for _, d := range []time.Duration{-1, 0, 1, time.Hour, math.MaxInt64} {
		w.add(d, 11*time.Minute) // no index out of range
	}
}
