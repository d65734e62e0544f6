package meta

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Snapshot is everything that is stored, of one moment.
type Snapshot struct {
	Catalog Catalog
	Shards  map[int16]ShardRows // every shard, whoever owns it
}

// Snapshot reads everything in one read-only transaction. It needs no ownership and changes nothing: for checks of a
// directory whose broker may be running or not.
func (p *Postgres) Snapshot(ctx context.Context) (Snapshot, error) {
	ctx, cancel := withLimit(ctx, loadLimit)
	defer cancel()
	var s Snapshot
	err := p.tx(ctx, p.durable, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(ctx context.Context, tx pgx.Tx) (err error) {
		s.Shards = make(map[int16]ShardRows, Shards)
		numbers := make([]int16, Shards)
		for i := range numbers {
			numbers[i] = int16(i)
			s.Shards[int16(i)] = ShardRows{}
		}
		if s.Catalog, err = readCatalog(ctx, tx); err != nil {
			return err
		}
		return loadShardRows(ctx, tx, numbers, s.Shards)
	})
	if err != nil {
		return Snapshot{}, fmt.Errorf("read a snapshot: %w", err)
	}
	for n, rows := range s.Shards {
		rows.sort()
		s.Shards[n] = rows
	}
	return s, nil
}
