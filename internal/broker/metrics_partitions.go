package broker

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Series with a partition are nearly all of a scrape, so they are made with care: the labels of a partition are made
// once, and everything comes in the registry's order (by label values, in the order of the label names), because sorting
// is cheap only then.

// partitionRow is one partition of a scrape with its labels.
type partitionRow struct {
	topic, partition string
	view             partitionView
	labels           []*dto.LabelPair // partition, topic: by name
}

func newPartitionRow(topic string, partition int, v partitionView) partitionRow {
	row := partitionRow{topic: topic, partition: strconv.Itoa(partition), view: v}
	row.labels = []*dto.LabelPair{label("partition", row.partition), label("topic", row.topic)}
	return row
}

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

// partitionSample is one value with labels that others share.
type partitionSample struct {
	of     series
	value  float64
	labels []*dto.LabelPair
	gauge  dto.Gauge
}

// Desc is the series.
func (s *partitionSample) Desc() *prometheus.Desc { return s.of.desc }

// Write fills in a gauge: all series of partitions are.
func (s *partitionSample) Write(m *dto.Metric) error {
	s.gauge.Value = &s.value
	m.Label, m.Gauge = s.labels, &s.gauge
	return nil
}

// offsetKinds are the values of the label kind, in order.
var offsetKinds = func() (pairs [5]*dto.LabelPair) {
	for i, kind := range [...]string{"durable", "end", "high", "stable", "start"} {
		pairs[i] = label("kind", kind)
	}
	return pairs
}()

// collectPartitions sends the series of all rows.
func collectPartitions(out sink, rows []partitionRow) {
	slices.SortFunc(rows, func(a, b partitionRow) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.topic, b.topic))
	})
	var led []partitionRow
	for _, row := range rows {
		if row.view.log == nil {
			out.put(seriesLeader, -1, row.topic, row.partition)
			continue
		}
		led = append(led, row)
		values := row.view.values()
		samples := make([]partitionSample, len(values))
		for i, v := range values {
			samples[i] = partitionSample{of: v.of, value: v.value, labels: row.labels}
			out <- &samples[i]
		}
	}
	for i, kind := range offsetKinds {
		samples := make([]partitionSample, len(led))
		pairs := make([]*dto.LabelPair, 0, 3*len(led))
		for j, row := range led {
			o := row.view.log.Offsets()
			value := [...]int64{o.Durable, o.End, o.High, o.Stable, o.Start}[i]
			pairs = append(pairs, kind, row.labels[0], row.labels[1])
			samples[j] = partitionSample{of: seriesOffset, value: float64(value), labels: pairs[len(pairs)-3 : len(pairs) : len(pairs)]}
			out <- &samples[j]
		}
	}
}
