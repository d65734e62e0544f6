// Package ops is the HTTP address of a broker: probes, metrics, later the console.
//
//	/healthz  200 while the process works; never asks Postgres, so that a failover restarts nothing
//	/readyz   200 when everything is served, else 503 and one line a failing check
//	/metrics  Prometheus text
package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Check is one condition of readiness; nil means fulfilled. It must not block.
type Check struct {
	Name string
	Test func() error
}

// Server serves one address.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Listen binds the address, so that a taken port is an error at start.
func Listen(address string, checks []Check, metrics prometheus.Gatherer, log *slog.Logger) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("http.listen %s: %w", address, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { writeReady(w, checks) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	}))
	return &Server{listener: l, http: &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}, nil
}

// Addr is the bound address.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve answers until Close; it returns nil then.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close stops the server; requests in progress may finish until ctx ends.
func (s *Server) Close(ctx context.Context) error { return s.http.Shutdown(ctx) }

func writeReady(w http.ResponseWriter, checks []Check) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	var failed []string
	for _, c := range checks {
		if err := c.Test(); err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", c.Name, err))
		}
	}
	if len(failed) == 0 {
		_, _ = w.Write([]byte("ready\n"))
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	for _, f := range failed {
		_, _ = fmt.Fprintln(w, f)
	}
}
