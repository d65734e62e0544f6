package wire

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ Observer }

func newMetrics(s *Server, next Observer) *metrics { return &metrics{next} }

func (m *metrics) countError(int16, string)         {}
func (m *metrics) Describe(chan<- *prometheus.Desc) {}
func (m *metrics) Collect(chan<- prometheus.Metric) {}
