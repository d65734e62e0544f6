package coordinator

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgbroker/pgbroker/internal/embedpg"
	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/internal/meta"
)

// stormVariable makes TestCommitStorm the long form: 2,000 members in 200 groups for a minute, then 300,000 commits beside
// a snapshot that stays open. `make storm` sets it.
const stormVariable = "PGBROKER_STORM"

// TestCommitStorm lets the members of many groups commit every second, in both durabilities, on a real Postgres: without
// a socket between, so the times are those of the coordinator and of Postgres. No member is lost, commits are quick, their
// rows are updated in place, and a snapshot that somebody holds does not slow them down.
func TestCommitStorm(t *testing.T) {
	for _, relaxed := range []bool{false, true} {
		t.Run(map[bool]string{false: "strict", true: "relaxed"}[relaxed], func(t *testing.T) {
			size := stormSize{groups: 40, members: 10, lasts: 2 * time.Second, every: time.Second, beside: 2 * time.Second, limit: time.Second}
			if os.Getenv(stormVariable) == "" {
				t.Parallel()
			} else {
				size = stormSize{groups: 200, members: 10, lasts: time.Minute, every: time.Second, beside: time.Minute, hard: 400 * time.Millisecond, limit: 100 * time.Millisecond}
			}
			runCommitStorm(t, size, relaxed)
		})
	}
}

type stormSize struct {
	groups, members int
	lasts, every    time.Duration // how long, and how often each member commits
	beside, hard    time.Duration // how long beside a snapshot, and how often then (0: as before)
	limit           time.Duration // of the 99th percentile
}

func runCommitStorm(t *testing.T, size stormSize, relaxed bool) {
	ctx := context.Background()
	url := stormPostgres(t, size.hard > 0)
	store, err := meta.Open(ctx, meta.Options{URL: url})
	check(t, err)
	t.Cleanup(store.Close)
	check(t, store.WaitReady(ctx, 20*time.Second, func(string) {}))
	check(t, store.Migrate(ctx))
	_, err = store.Bootstrap(ctx)
	check(t, err)
	registered, err := store.Register(ctx, meta.Registration{BrokerID: 1, ProcessID: meta.UUID{1}, Lease: time.Minute, LogDirs: []meta.UUID{{1}}})
	check(t, err)
	owner := meta.Owner{BrokerID: 1, Incarnation: registered.Incarnation}
	shards, err := store.TakeShards(ctx, owner, nil)
	check(t, err)
	g := New(Options{Owner: 1, Store: store, InitialRebalanceDelay: 200 * time.Millisecond, Relaxed: relaxed})
	g.Load(shards, map[int16]meta.ShardRows{})
	run, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = g.Run(run) })
	t.Cleanup(func() {
		closing, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		g.Close(closing)
		stop()
		running.Wait()
	})
	running.Go(func() { // renewals
		for run.Err() == nil {
			sent := g.Standing()
			if r, err := store.Renew(run, owner, time.Minute, math.MaxInt64); err == nil {
				g.Renewed(sent, r.ShardSeqs)
			}
			select {
			case <-run.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
	members := stormMembers(t, g, size)
	db, err := pgx.Connect(ctx, url)
	check(t, err)
	defer db.Close(ctx)
	commitAll(t, g, members, size.every, size.every) // the rows are there, now they are updated
	hot0, all0 := updates(t, db)
	p99, commits := commitAll(t, g, members, size.every, size.lasts)
	hot1, all1 := updates(t, db)
	share := float64(hot1-hot0) / float64(max(all1-all0, 1))
	t.Logf("%d members in %d groups: %d commits in %s, p99 %s; %.1f %% of %d updates in place", len(members), size.groups, commits, size.lasts, p99, 100*share, all1-all0)
	if p99 > size.limit {
		t.Errorf("p99 is %s, limit %s", p99, size.limit)
	}
	if share < 0.9 {
		t.Errorf("only %.1f %% of the updates were in place", 100*share)
	}
	base, every := p99, size.every
	if size.hard > 0 {
		every = size.hard
		base, _ = commitAll(t, g, members, every, 10*time.Second)
	}
	holder, err := pgx.Connect(ctx, url)
	check(t, err)
	defer holder.Close(ctx)
	_, err = holder.Exec(ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ`)
	check(t, err)
	_, err = holder.Exec(ctx, `SELECT count(*) FROM pgbroker_internal.group_offsets`)
	check(t, err)
	beside, commits := commitAll(t, g, members, every, size.beside)
	last, more := commitAll(t, g, members, every, max(size.beside/6, time.Second))
	t.Logf("beside an open snapshot: %d commits, p99 %s, then %s; before it %s", commits+more, beside, last, base)
	if floor := 20 * time.Millisecond; last > 2*max(base, floor) && size.hard > 0 {
		t.Errorf("beside an open snapshot the p99 is %s, before it %s", last, base)
	}
}

// stormPostgres is a server that syncs for the long form.
func stormPostgres(t *testing.T, long bool) string {
	if !long {
		return pgtest.URL(t)
	}
	server, err := embedpg.Start(context.Background(), embedpg.Options{DataDir: t.TempDir(), EndWithOwner: true})
	check(t, err)
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	return server.URL("postgres")
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stormMember is one member, with a partition of its own.
type stormMember struct {
	group, id  string
	generation int32
	partition  int32
	offset     int64
}

// stormMembers forms the groups.
func stormMembers(t *testing.T, g *Groups, size stormSize) []*stormMember {
	members := make([]*stormMember, 0, size.groups*size.members)
	var mu sync.Mutex
	var joining sync.WaitGroup
	for n := range size.groups {
		for m := range size.members {
			joining.Go(func() {
				group := fmt.Sprint("storm-", n)
				id := ""
				for {
					r := await(func(done func(JoinReply)) { g.Join(joinRequest(group, id), done) })
					id = r.MemberID
					if r.Err != nil {
						continue
					}
					var shares []Assignment
					for _, other := range r.Members {
						shares = append(shares, Assignment{other.MemberID, []byte("share")})
					}
					synced := await(func(done func(SyncReply)) {
						g.Sync(SyncRequest{Group: group, MemberID: id, Generation: r.Generation, Assignments: shares}, done)
					})
					if synced.Err == nil {
						mu.Lock()
						members = append(members, &stormMember{group, id, r.Generation, int32(m), 0})
						mu.Unlock()
						return
					}
				}
			})
		}
	}
	joining.Wait()
	generations := map[string]int32{}
	for _, m := range members {
		generations[m.group] = max(generations[m.group], m.generation)
	}
	for _, m := range members {
		m.generation = generations[m.group] // those of an earlier one have been asked to come again, and are members of it
	}
	return members
}

// commitAll commits for a while and returns the 99th percentile of the times. A member that is refused is lost.
func commitAll(t *testing.T, g *Groups, members []*stormMember, every, lasts time.Duration) (p99 time.Duration, commits int) {
	t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	var lost atomic.Int32
	var running sync.WaitGroup
	end := time.Now().Add(lasts)
	for i, m := range members {
		running.Go(func() {
			time.Sleep(every * time.Duration(i) / time.Duration(len(members)))
			for next := time.Now(); next.Before(end); next = next.Add(every) {
				time.Sleep(time.Until(next))
				m.offset++
				r := commitRequest(m.group, m.id, m.generation, m.offset)
				r.Offsets[0].Partition = m.partition
				began := time.Now()
				reply := await(func(done func(CommitReply)) { g.CommitOffsets(r, done) })
				d := time.Since(began)
				beat := await(func(done func(error)) {
					g.Heartbeat(HeartbeatRequest{Group: m.group, MemberID: m.id, Generation: m.generation}, done)
				})
				if reply.Err != nil || beat != nil {
					if lost.Add(1) == 1 {
						t.Errorf("%s in %s: commit %v, heartbeat %v", m.id, m.group, reply.Err, beat)
					}
					return
				}
				mu.Lock()
				took = append(took, d)
				mu.Unlock()
			}
		})
	}
	running.Wait()
	if n := lost.Load(); n > 0 {
		t.Errorf("%d members were lost", n)
	}
	if len(took) == 0 {
		t.Fatal("nothing was committed")
	}
	slices.Sort(took)
	return took[len(took)*99/100].Round(100 * time.Microsecond), len(took)
}

// updates counts updates of offsets, those in place and all.
func updates(t *testing.T, db *pgx.Conn) (hot, all int64) {
	t.Helper()
	time.Sleep(1200 * time.Millisecond) // sessions report their numbers once a second
	check(t, db.QueryRow(context.Background(), `SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE schemaname = 'pgbroker_internal' AND relname = 'group_offsets'`).Scan(&hot, &all))
	return hot, all
}
