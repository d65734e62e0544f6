package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgbroker/pgbroker/internal/config"
	"github.com/pgbroker/pgbroker/internal/logtool"
	"github.com/pgbroker/pgbroker/internal/meta"
)

// loadQuietly reads settings for a command that is no broker: what it warns of goes to stderr as notes.
func (f *settingFlags) loadQuietly(w io.Writer, extra ...string) (*config.Config, *slog.Logger, error) {
	log := slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg, err := f.load(log, extra...)
	return cfg, log, err
}

// readClaims reads what Postgres says of the logs; it changes nothing there.
func readClaims(ctx context.Context, url string, stderr io.Writer) (*logtool.Claims, error) {
	var settings settingFlags
	cfg, log, err := settings.loadQuietly(stderr, "postgres.url="+url)
	if err != nil {
		return nil, err
	}
	store, err := openStore(ctx, cfg, log, prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	defer store.Close()
	snapshot, err := store.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("postgres.url: %w", err)
	}
	return claimsOf(snapshot), nil
}

// decided names the outcome of a decision as markers do.
var decided = map[meta.Outcome]string{meta.OutcomeCommit: "commit", meta.OutcomeAbort: "abort"}

func claimsOf(s meta.Snapshot) *logtool.Claims {
	c := &logtool.Claims{}
	for _, t := range s.Catalog.Topics {
		topic := logtool.ClaimedTopic{Name: t.Name, ID: t.ID}
		for _, p := range t.Partitions {
			topic.Partitions = append(topic.Partitions, logtool.ClaimedPartition{Leader: p.Leader, Term: p.Term})
		}
		c.Topics = append(c.Topics, topic)
	}
	for n := range int16(meta.Shards) {
		for _, o := range s.Shards[n].Offsets {
			c.Offsets = append(c.Offsets, logtool.CommittedOffset{Group: o.Group, Partition: o.Partition, Offset: o.Offset, TopicID: o.TopicID})
		}
		for _, t := range s.Shards[n].Transactions {
			row := logtool.ClaimedTransaction{ID: t.ID, ProducerID: t.ProducerID, Decided: decided[t.Outcome],
				DecidedProducerID: t.DecidedProducerID, MarkerEpoch: t.MarkerEpoch}
			for _, p := range t.Partitions {
				row.Partitions = append(row.Partitions, logtool.ClaimedEnd{TopicID: p.TopicID, Partition: p.Partition, First: p.FirstOffset})
			}
			c.Transactions = append(c.Transactions, row)
		}
	}
	return c
}
