package ops

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestProbesAndMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "pgbroker_test_total", Help: "A counter."})
	reg.MustRegister(c)
	c.Add(3)
	var away atomic.Bool
	s, err := Listen("127.0.0.1:0", []Check{
		{Name: "postgres", Test: func() error {
			if away.Load() {
				return errors.New("no answer")
			}
			return nil
		}},
	}, reg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get("http://" + s.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if code, body := get("/readyz"); code != 200 || body != "ready\n" {
		t.Errorf("/readyz = %d %q", code, body)
	}
	away.Store(true)
	if code, body := get("/readyz"); code != 503 || body != "postgres: no answer\n" {
		t.Errorf("/readyz without postgres = %d %q", code, body)
	}
	if code, _ := get("/healthz"); code != 200 {
		t.Errorf("/healthz without postgres = %d, a failover must not restart the broker", code)
	}
	if _, body := get("/metrics"); !strings.Contains(body, "pgbroker_test_total 3") {
		t.Errorf("/metrics lacks the counter: %q", body)
	}
	if code, _ := get("/nothing"); code != 404 {
		t.Errorf("/nothing = %d", code)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
}

func TestTakenPortIsAnErrorAtStart(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	s, err := Listen("127.0.0.1:0", nil, prometheus.NewRegistry(), log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.listener.Close() }()
	if _, err := Listen(s.Addr().String(), nil, prometheus.NewRegistry(), log); err == nil || !strings.Contains(err.Error(), s.Addr().String()) {
		t.Errorf("err = %v, want one that names the address", err)
	}
}
