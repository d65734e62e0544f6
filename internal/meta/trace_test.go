package meta_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgbroker/pgbroker/internal/meta"
)

func delta(before, after map[string]int64) map[string]int64 {
	out := map[string]int64{}
	for name, n := range after {
		if n != before[name] {
			out[name] = n - before[name]
		}
	}
	return out
}

// TestStatementCounts also pins what the frequent methods send: no BEGIN, no COMMIT, nothing per topic or row.
func TestStatementCounts(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := open(t, func(o *meta.Options) { o.Registerer = registry })
	ctx := context.Background()
	o, shards := owned(t, p)
	var topics []meta.NewTopic
	for n := range byte(20) {
		topics = append(topics, meta.NewTopic{ID: meta.UUID{1, n}, Name: "t" + string('a'+rune(n)), Replicas: [][]int32{{1}, {1}}, Configs: map[string]string{"a": "b"}})
	}
	for _, c := range []struct {
		name string
		run  func() error
		want map[string]int64
	}{
		{"CommitShards", func() error {
			changes := []meta.ShardChange{offsetChange(shards[0], 0), offsetChange(shards[1], 0)}
			changes[0].Groups = []meta.GroupRow{{Group: "g", Version: 1}}
			changes[1].DeletedGroups = []meta.GroupKey{{Group: "h"}}
			changes[1].Offsets[0].Group = "h"
			return p.CommitShards(ctx, 1, changes)
		}, map[string]int64{"shards_guard": 1, "groups_upsert": 1, "offsets_upsert": 1, "groups_delete": 1}},
		{"Renew", func() error {
			_, err := p.Renew(ctx, o, time.Hour, 3)
			return err
		}, map[string]int64{"renew": 1, "catalog": 1, "own_shards": 1, "server_mark": 1}},
		{"CreateTopics", func() error {
			_, _, err := p.CreateTopics(ctx, o, topics)
			return err
		}, map[string]int64{"begin": 1, "owner_guard": 1, "cluster_lock": 1, "topics_insert": 1, "partitions_insert": 1, "configs_insert": 1, "catalog": 1, "cluster_move": 1, "commit": 1}},
		{"SaveLogOffsets", func() error {
			return p.SaveLogOffsets(ctx, []meta.LogOffset{{TopicID: meta.UUID{1, 0}}, {TopicID: meta.UUID{1, 1}}})
		}, map[string]int64{"log_offsets": 1}},
	} {
		before := p.StatementCounts()
		fatal(t, c.run())
		if got := delta(before, p.StatementCounts()); !maps.Equal(got, c.want) {
			t.Errorf("%s sent %v, want %v", c.name, got, c.want)
		}
	}
	families, err := registry.Gather()
	fatal(t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			key := f.GetName()
			for _, l := range m.Label {
				key += "," + l.GetValue()
			}
			values[key] = m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for key, least := range map[string]float64{
		"pgbroker_postgres_up": 1, "pgbroker_postgres_statement_duration_seconds,shards_guard": 1, "pgbroker_postgres_commit_duration_seconds,durable": 3,
		"pgbroker_postgres_commit_duration_seconds,relaxed": 1, "pgbroker_postgres_pool_connections,control,idle": 1,
	} {
		if values[key] < least {
			t.Errorf("%s is %v, want at least %v", key, values[key], least)
		}
	}
}
