package metatest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// taken bootstraps, registers broker 1 and takes all shards.
func (s *suite) taken() (meta.Owner, []meta.Shard) {
	s.Helper()
	o := s.start()
	shards, err := s.store.TakeShards(s.ctx, o, nil)
	s.ok(err)
	return o, shards
}

// change is an empty change of a shard as it was read.
func change(sh meta.Shard) meta.ShardChange {
	return meta.ShardChange{Shard: sh.Shard, Term: sh.Term, Seq: sh.Seq}
}

func (s *suite) load(shards ...meta.Shard) map[int16]meta.ShardRows {
	s.Helper()
	rows, err := s.store.LoadShards(s.ctx, 1, shards)
	s.ok(err)
	return rows
}

var (
	committed = time.Date(2026, 3, 1, 12, 30, 0, 123456000, time.UTC)
	instance  = "static-\x00-1"

	groupRow = meta.GroupRow{Group: "g", Kind: "classic", ProtocolType: "consumer", Protocol: "range", Generation: 7, Leader: "m1", Version: 1}
	emptyRow = meta.GroupRow{Group: "empty", Kind: "classic", ProtocolType: "consumer", Generation: 3, EmptySince: committed, Version: 1}
	fullRow  = meta.MemberRow{Group: "g", MemberID: "m1", InstanceID: &instance, ClientID: "c\xff", ClientHost: "/127.0.0.1",
		SessionTimeout: 45 * time.Second, RebalanceTimeout: 5 * time.Minute, Assignment: []byte{0, 1, 255},
		Protocols: []meta.MemberProtocol{{Name: "z", Metadata: []byte{0, 255}}, {Name: "a\x00", Metadata: []byte{}}}, Version: 1}
	bareRow   = meta.MemberRow{Group: "g", MemberID: "m2", SessionTimeout: time.Millisecond, Protocols: []meta.MemberProtocol{}, Version: 1}
	offsetRow = meta.OffsetRow{Group: "g", TopicID: id(1), Partition: 2, Offset: math.MaxInt64, LeaderEpoch: -1, Metadata: "text \x00 \xfe", CommittedAt: committed, Version: 1}
	expiring  = meta.OffsetRow{Group: "g", TopicID: id(1), Partition: 3, Offset: -1, LeaderEpoch: 9, CommittedAt: committed, ExpiresAt: committed.Add(time.Hour), Version: 1}
)

// text prints rows so that two are equal exactly if their texts are.
func text(r meta.ShardRows) string {
	var b strings.Builder
	for _, g := range r.Groups {
		fmt.Fprintf(&b, "%q\n", fmt.Sprint(g))
	}
	for _, m := range r.Members {
		id := "none"
		if m.InstanceID != nil {
			id = *m.InstanceID
		}
		m.InstanceID = nil
		fmt.Fprintf(&b, "%q %q %v\n", fmt.Sprint(m), id, m.Assignment == nil)
	}
	for _, o := range r.Offsets {
		fmt.Fprintf(&b, "%q\n", fmt.Sprint(o))
	}
	return b.String()
}

var shardCases = []suiteCase{
	{"shards are taken under new terms", func(s *suite) {
		o, shards := s.taken()
		equal(s, "shards", len(shards), meta.Shards)
		for i, sh := range shards {
			equal(s, "shard", sh, meta.Shard{Shard: int16(i), Owner: 1, Term: 1, Seq: 0})
		}
		again, err := s.store.TakeShards(s.ctx, o, map[int16]int32{3: 40, 4: 1})
		s.ok(err)
		equal(s, "term", again[0].Term, 2)
		equal(s, "term above the floor", again[3].Term, 41)
		equal(s, "term with a floor below the row", again[4].Term, 2)
		s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{change(shards[0])}), meta.ErrFenced)
		r := registration(1)
		r.ShardFloors = map[int16]int32{5: 60}
		s.register(r)
		_, err = s.store.LoadShards(s.ctx, 1, again[:1])
		s.is(err, meta.ErrFenced) // registration has raised it
		raised := again[5]
		raised.Term = 61
		s.load(raised)
	}},
	{"rows come back as they were written", func(s *suite) {
		_, shards := s.taken()
		c := change(shards[9])
		c.Groups = []meta.GroupRow{groupRow, emptyRow}
		c.Members = []meta.MemberRow{bareRow, fullRow}
		c.Offsets = []meta.OffsetRow{expiring, offsetRow}
		other := change(shards[2])
		other.Groups = []meta.GroupRow{{Group: "other", Kind: "classic", Version: 5}}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c, other}))
		rows := s.load(shards[9], shards[2], shards[3])
		equal(s, "shards", len(rows), 3)
		want := meta.ShardRows{Groups: []meta.GroupRow{emptyRow, groupRow}, Members: []meta.MemberRow{fullRow, bareRow}, Offsets: []meta.OffsetRow{offsetRow, expiring}}
		equal(s, "rows", text(rows[9]), text(want))
		equal(s, "rows of the other shard", text(rows[2]), text(meta.ShardRows{Groups: other.Groups}))
		equal(s, "rows of an empty shard", text(rows[3]), "")
	}},
	{"a time beyond all calendars is stored as the last one", func(s *suite) {
		_, shards := s.taken()
		c := change(shards[0])
		row := offsetRow
		row.CommittedAt, row.ExpiresAt = time.UnixMilli(math.MinInt64), time.UnixMilli(math.MaxInt64)
		c.Offsets = []meta.OffsetRow{row}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
		got := s.load(shards[0])[0].Offsets[0]
		equal(s, "committed", got.CommittedAt, meta.StoredTime(row.CommittedAt))
		equal(s, "expires", got.ExpiresAt.Year(), 9999)
	}},
	{"a row replaces only an older version of itself", func(s *suite) {
		_, shards := s.taken()
		c := change(shards[0])
		c.Groups, c.Members, c.Offsets = []meta.GroupRow{groupRow}, []meta.MemberRow{fullRow}, []meta.OffsetRow{offsetRow}
		c.Groups[0].Version, c.Members[0].Version, c.Offsets[0].Version = 5, 5, 5
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
		before := text(s.load(shards[0])[0])
		c.Seq++
		g, m, o := groupRow, bareRow, offsetRow
		g.Generation, m.MemberID, o.Offset = 99, "m1", 99
		for name, fill := range map[string]func(*meta.ShardChange){
			"group":         func(c *meta.ShardChange) { g.Version = 5; c.Groups = []meta.GroupRow{g} },
			"member":        func(c *meta.ShardChange) { m.Version = 4; c.Members = []meta.MemberRow{m} },
			"offset":        func(c *meta.ShardChange) { o.Version = 5; c.Offsets = []meta.OffsetRow{o} },
			"deleted group": func(c *meta.ShardChange) { c.DeletedGroups = []meta.GroupKey{{Group: "g", Version: 4}} },
			"deleted member": func(c *meta.ShardChange) {
				c.DeletedMembers = []meta.MemberKey{{Group: "g", MemberID: "m1", Version: 4}}
			},
			"deleted offset": func(c *meta.ShardChange) {
				c.DeletedOffsets = []meta.OffsetKey{{Group: "g", TopicID: id(1), Partition: 2, Version: 4}}
			},
			"with another row": func(c *meta.ShardChange) { o.Version = 1; c.Offsets = []meta.OffsetRow{expiring, o} },
		} {
			old := meta.ShardChange{Shard: c.Shard, Term: c.Term, Seq: c.Seq}
			fill(&old)
			if err := s.store.CommitShards(s.ctx, 1, []meta.ShardChange{old}); !errors.Is(err, meta.ErrRowMoved) {
				s.Fatalf("%s: %v", name, err)
			}
		}
		equal(s, "rows", text(s.load(shards[0])[0]), before) // and seq has not moved
		next := meta.ShardChange{Shard: c.Shard, Term: c.Term, Seq: c.Seq, DeletedMembers: []meta.MemberKey{{Group: "g", MemberID: "never", Version: 1}}}
		g.Version, m.Version, o.Version = 6, 6, 6
		next.Groups, next.Members, next.Offsets = []meta.GroupRow{g}, []meta.MemberRow{m}, []meta.OffsetRow{o}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{next}))
		rows := s.load(shards[0])[0]
		equal(s, "generation", rows.Groups[0].Generation, 99)
		equal(s, "timeout", rows.Members[0].SessionTimeout, time.Millisecond)
		equal(s, "offset", rows.Offsets[0].Offset, 99)
	}},
	{"rows are deleted up to a version", func(s *suite) {
		_, shards := s.taken()
		c := change(shards[0])
		second, third := groupRow, groupRow
		second.Group, third.Group = "g2", "g3"
		m2, o2 := fullRow, offsetRow
		m2.Group, o2.Group = "g2", "g2"
		c.Groups, c.Members, c.Offsets = []meta.GroupRow{groupRow, second, third}, []meta.MemberRow{fullRow, bareRow, m2}, []meta.OffsetRow{offsetRow, expiring, o2}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
		c = meta.ShardChange{Shard: c.Shard, Term: c.Term, Seq: c.Seq + 1, DeletedGroups: []meta.GroupKey{{Group: "g2", Version: 1}, {Group: "g3", Version: 9}},
			DeletedMembers: []meta.MemberKey{{Group: "g", MemberID: "m2", Version: 1}}, DeletedOffsets: []meta.OffsetKey{{Group: "g", TopicID: id(1), Partition: 3, Version: 1}}}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
		want := meta.ShardRows{Groups: []meta.GroupRow{groupRow}, Members: []meta.MemberRow{fullRow}, Offsets: []meta.OffsetRow{offsetRow}}
		equal(s, "rows", text(s.load(shards[0])[0]), text(want))
	}},
	{"a commit of several shards happens whole or not at all", func(s *suite) {
		_, shards := s.taken()
		a, b := change(shards[1]), change(shards[0])
		a.Offsets, b.Offsets = []meta.OffsetRow{offsetRow}, []meta.OffsetRow{expiring}
		stale, fenced, future := b, b, b
		stale.Seq++
		fenced.Term--
		future.Term++
		s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{a, stale}), meta.ErrStale)
		s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{a, fenced}), meta.ErrFenced)
		s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{a, future}), meta.ErrForked)
		s.is(s.store.CommitShards(s.ctx, 2, []meta.ShardChange{a, b}), meta.ErrFenced)
		s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{a, a}), meta.ErrInvalid)
		s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{{Shard: meta.Shards}}), meta.ErrInvalid)
		s.ok(s.store.CommitShards(s.ctx, 1, nil))
		rows := s.load(shards[0], shards[1])
		equal(s, "rows", text(rows[0])+text(rows[1]), "")
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{a, b})) // seq has not moved
		s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{a, b}), meta.ErrStale)
		rows = s.load(shards[0], shards[1])
		equal(s, "offsets", len(rows[0].Offsets)+len(rows[1].Offsets), 2)
	}},
	{"ids up to the limit are stored, longer ones refused", func(s *suite) {
		_, shards := s.taken()
		for n, long := range []string{random(meta.MaxKeyBytes), strings.Repeat("\x00", meta.MaxKeyBytes)} {
			c := change(shards[n])
			g, m, o := groupRow, fullRow, offsetRow
			g.Group, m.Group, m.MemberID, o.Group = long, long, long, long
			c.Groups, c.Members, c.Offsets = []meta.GroupRow{g}, []meta.MemberRow{m}, []meta.OffsetRow{o}
			s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
			rows := s.load(shards[n])[int16(n)]
			equal(s, "group", rows.Groups[0].Group, long)
			equal(s, "member", rows.Members[0].MemberID, long)
			c.Seq++
			c.Groups[0].Group += "x"
			s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}), meta.ErrInvalid)
		}
	}},
	{"of many commits under one seq one happens", func(s *suite) {
		_, shards := s.taken()
		for round := range int64(5) {
			errs := race(4, func(i int) error {
				a, b := change(shards[0]), change(shards[1])
				a.Seq, b.Seq = round, round
				row := offsetRow
				row.Offset, row.Version = int64(i), round+1
				a.Offsets = []meta.OffsetRow{row}
				if i%2 == 0 { // either order: no deadlock
					return s.store.CommitShards(s.ctx, 1, []meta.ShardChange{b, a})
				}
				return s.store.CommitShards(s.ctx, 1, []meta.ShardChange{a, b})
			})
			equal(s, "done", count(errs, nil), 1)
			equal(s, "stale", count(errs, meta.ErrStale), 3)
			for i, err := range errs {
				if err == nil {
					equal(s, "offset", s.load(shards[0])[0].Offsets[0].Offset, int64(i))
				}
			}
		}
	}},
	{"a new owner ends the old one's commits", func(s *suite) {
		o, shards := s.taken()
		stop := make(chan struct{})
		last := make(chan int64)
		go func() { // commits as fast as it can until it is fenced
			c := change(shards[0])
			for {
				row := offsetRow
				row.Offset, row.Version = c.Seq+1, c.Seq+1
				c.Offsets = []meta.OffsetRow{row}
				if err := s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}); err != nil {
					if count([]error{err}, meta.ErrFenced) != 1 {
						s.Errorf("the old owner's commit ends with %v", err)
					}
					last <- c.Seq
					return
				}
				if c.Seq++; c.Seq == 5 {
					close(stop)
				}
			}
		}()
		<-stop
		again, err := s.store.TakeShards(s.ctx, o, nil)
		s.ok(err)
		rows := s.load(again[0])[0]
		equal(s, "offset at take-over", rows.Offsets[0].Offset, again[0].Seq)
		equal(s, "the old owner's last seq", <-last, again[0].Seq)
		equal(s, "offset afterwards", s.load(again[0])[0].Offsets[0].Offset, again[0].Seq)
	}},
	{"an unknown commit is settled", func(s *suite) {
		_, shards := s.taken()
		done, lost := change(shards[0]), change(shards[1])
		done.Offsets, lost.Offsets = []meta.OffsetRow{offsetRow}, []meta.OffsetRow{expiring}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{done}))
		got, err := s.store.ResolveShards(s.ctx, 1, meta.Unknown(lost, done))
		s.ok(err)
		resolved(s, "the one that did not happen", got[0], meta.Resolved{Shard: 1, Seq: 2})
		resolved(s, "the one that happened", got[1], meta.Resolved{Shard: 0, TookEffect: true, Seq: 1})
		s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{lost}), meta.ErrStale) // it cannot any more
		again, err := s.store.ResolveShards(s.ctx, 1, meta.Unknown(lost, done))
		s.ok(err)
		resolved(s, "once more, the one that did not happen", again[0], got[0])
		resolved(s, "once more, the one that happened", again[1], got[1])
		ahead := lost
		ahead.Seq = 10 // the stored seq is behind: the database went back
		back, err := s.store.ResolveShards(s.ctx, 1, meta.Unknown(ahead))
		s.ok(err)
		resolved(s, "a stored seq that is behind", back[0], meta.Resolved{Shard: 1, Seq: 12})
		lost.Seq = 12
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{lost}))
		deposed := lost
		deposed.Term--
		_, err = s.store.ResolveShards(s.ctx, 1, meta.Unknown(deposed))
		s.is(err, meta.ErrFenced)
		_, err = s.store.ResolveShards(s.ctx, 2, meta.Unknown(lost))
		s.is(err, meta.ErrFenced)
	}},
	{"a commit and its resolution never both win", func(s *suite) {
		_, shards := s.taken()
		for n, sh := range shards[:20] {
			c := change(sh)
			row := offsetRow
			row.Group = fmt.Sprint("raced-", n)
			c.Offsets = []meta.OffsetRow{row}
			var resolved []meta.Resolved
			errs := race(2, func(i int) (err error) {
				if i == 0 {
					return s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c})
				}
				resolved, err = s.store.ResolveShards(s.ctx, 1, meta.Unknown(c))
				return err
			})
			s.ok(errs[1])
			equal(s, "commit succeeded", errs[0] == nil, resolved[0].TookEffect)
			equal(s, "row is there", len(s.load(sh)[sh.Shard].Offsets) == 1, resolved[0].TookEffect)
		}
	}},
	{"a cancelled call did not happen or says that it may have", func(s *suite) {
		_, shards := s.taken()
		ctx, cancel := context.WithCancel(s.ctx)
		cancel()
		c := change(shards[0])
		s.is(s.store.CommitShards(ctx, 1, []meta.ShardChange{c}), meta.ErrUnavailable)
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
	}},
}

// resolved compares outcomes without what was found.
func resolved(s *suite, what string, got, want meta.Resolved) {
	s.Helper()
	got.Found, want.Found = meta.ShardRows{}, meta.ShardRows{}
	if !reflect.DeepEqual(got, want) {
		s.Fatalf("%s is %+v, want %+v", what, got, want)
	}
}

// random is a text that does not compress, so that an index must take all of it.
func random(n int) string {
	var b strings.Builder
	for x := uint64(88172645463325252); b.Len() < n; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b.WriteByte(byte('!' + x%90))
	}
	return b.String()
}
