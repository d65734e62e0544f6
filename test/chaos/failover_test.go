package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgbroker/pgbroker/internal/embedpg"
	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
)

// pair is a primary and its streaming standby, which change places at each failover.
type pair struct {
	primary, standby *embedpg.Server
	// synchronous: the primary waits for the standby at each commit that waits for a disk, so a failover forgets nothing.
	// Otherwise each forgets the last commits.
	synchronous bool
}

// pairLimit bounds each step of a failover on a busy machine.
const pairLimit = 60 * time.Second

func newPair(t *testing.T, synchronous bool) *pair {
	t.Helper()
	p := &pair{primary: pgtest.Server(t), synchronous: synchronous}
	p.standby = pgtest.Standby(t, p.primary)
	ctx, cancel := context.WithTimeout(context.Background(), pairLimit)
	defer cancel()
	if err := p.armed(ctx); err != nil {
		t.Fatal(err)
	}
	return p
}

// url is that of whichever can be written to. Both servers have one password, so it stays when they change places.
func (p *pair) url() string {
	return strings.Replace(p.primary.URL("postgres"), p.primary.HostPort(), p.primary.HostPort()+","+p.standby.HostPort(), 1) + "&target_session_attrs=read-write"
}

// armed returns when the standby streams, and, with synchronous replication, has everything that was committed before.
func (p *pair) armed(ctx context.Context) error {
	if p.synchronous {
		if err := p.primary.WaitForStandbys(ctx, true); err != nil {
			return err
		}
	}
	want := map[bool]string{true: "sync", false: "async"}[p.synchronous]
	return onServer(ctx, p.primary, func(db *pgx.Conn) error {
		for state := ""; state != want; {
			err := db.QueryRow(ctx, `SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'`).Scan(&state)
			if err != nil && err != pgx.ErrNoRows {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			time.Sleep(10 * time.Millisecond)
		}
		_, err := db.Exec(ctx, `SELECT pg_logical_emit_message(true, 'chaos', 'this commit waits for the standby')`)
		return err
	})
}

func onServer(ctx context.Context, s *embedpg.Server, f func(*pgx.Conn) error) error {
	db, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	return f(db)
}

// promote makes the standby the primary. The old one is killed, or lives on and refuses to write, so that the broker's
// sessions there stay open (of those that wait for the standby the outcome is unknown).
func (p *pair) promote(ctx context.Context, random *rand.Rand, livesOn bool) error {
	if !p.synchronous {
		if err := p.standby.Detach(ctx); err != nil { // what the primary commits from now on is forgotten
			return err
		}
		time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond)
	}
	if livesOn {
		err := onServer(ctx, p.primary, func(db *pgx.Conn) error {
			_, err := db.Exec(ctx, `ALTER SYSTEM SET default_transaction_read_only = on`)
			if err == nil {
				_, err = db.Exec(ctx, `SELECT pg_reload_conf()`)
			}
			return err
		})
		if err != nil {
			return err
		}
	} else if err := p.primary.Immediate(); err != nil {
		return err
	}
	if err := p.standby.Promote(ctx); err != nil {
		return err
	}
	p.primary, p.standby = p.standby, p.primary
	return nil
}

// marks say how often each of the coordinator's shards was compared with what the broker knows.
type marks struct {
	history int
	fillers map[int16]int64
}

func marksOn(ctx context.Context, s *embedpg.Server) (m marks, err error) {
	m.fillers = map[int16]int64{}
	err = onServer(ctx, s, func(db *pgx.Conn) error {
		if err := db.QueryRow(ctx, `SELECT history FROM pgbroker_internal.cluster`).Scan(&m.history); err != nil {
			return err
		}
		rows, err := db.Query(ctx, `SELECT shard, coalesce(max(seq) FILTER (WHERE filler), -1) FROM pgbroker_internal.shard_seqs GROUP BY shard`)
		if err != nil {
			return err
		}
		var shard int16
		var seq int64
		_, err = pgx.ForEachRow(rows, []any{&shard, &seq}, func() error { m.fillers[shard] = seq; return nil })
		return err
	})
	return m, err
}

// follows waits until the broker has compared all it knows with the new primary, and put back what that lacks. Until then
// nobody else knows what was forgotten, so the broker must not be killed.
func (p *pair) follows(ctx context.Context, before marks) error {
	for {
		now, err := marksOn(ctx, p.primary)
		if err != nil && ctx.Err() == nil { // it may still be starting
			time.Sleep(20 * time.Millisecond)
			continue
		} else if err != nil {
			return err
		}
		compared := 0
		for shard, seq := range now.fillers {
			if seq > before.fillers[shard] {
				compared++
			}
		}
		if now.history > before.history && compared == len(before.fillers) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the broker has not followed: history %d, was %d; %d of %d shards compared", now.history, before.history, compared, len(before.fillers))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (r *run) failover(random *rand.Rand) (string, error) { return r.changePlaces(random, false) }

// losePrimaryAlive is a failover in which the old primary keeps its sessions and only refuses to write.
func (r *run) losePrimaryAlive(random *rand.Rand) (string, error) {
	return r.changePlaces(random, true)
}

// changePlaces promotes the standby, waits for the broker to follow, and has the old primary back as the new one's standby.
func (r *run) changePlaces(random *rand.Rand, livesOn bool) (string, error) {
	if r.pair == nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), pairLimit)
	defer cancel()
	before, err := marksOn(ctx, r.pair.primary)
	if err != nil {
		return "", err
	}
	if err := r.pair.promote(ctx, random, livesOn); err != nil {
		return "", fmt.Errorf("promote: %w", err)
	}
	r.pg = r.pair.primary
	promoted := time.Now()
	if err := r.pair.follows(ctx, before); err != nil {
		return "", err
	}
	r.followed = max(r.followed, time.Since(promoted))
	if err := r.pair.standby.Follow(ctx, r.pair.primary); err != nil {
		return "", fmt.Errorf("the old primary as a standby: %w", err)
	}
	if err := r.pair.armed(ctx); err != nil {
		return "", fmt.Errorf("the new standby: %w", err)
	}
	return r.pair.fault(livesOn), nil
}

// fault is what a failover is counted as.
func (p *pair) fault(livesOn bool) string {
	name := map[bool]string{true: "failover-sync", false: "failover-async"}[p.synchronous]
	if livesOn {
		name += "-alive"
	}
	return name
}
