package coordinator

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// acceptingStore takes everything at once: what is measured is the coordinator alone.
type acceptingStore struct{}

func (acceptingStore) CommitShards(context.Context, int32, []meta.ShardChange) error { return nil }
func (acceptingStore) CommitShardsRelaxed(context.Context, int32, []meta.ShardChange) error {
	return nil
}
func (acceptingStore) ResolveShards(context.Context, int32, []meta.Resolve) ([]meta.Resolved, error) {
	return nil, nil
}
func (acceptingStore) LoadShards(context.Context, int32, []meta.Shard) (map[int16]meta.ShardRows, error) {
	return nil, nil
}

func startBench(b *testing.B) *Groups {
	g := New(Options{Store: acceptingStore{}, InitialRebalanceDelay: 100 * time.Millisecond})
	shards := make([]meta.Shard, meta.Shards)
	for i := range shards {
		shards[i].Shard = int16(i)
	}
	g.Load(shards, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Run(context.Background())
	}()
	b.Cleanup(func() {
		g.Close(context.Background())
		<-done
	})
	return g
}

// BenchmarkCommit is one offset of one of 200 groups.
func BenchmarkCommit(b *testing.B) {
	g := startBench(b)
	names := groupNames(200)
	b.ReportAllocs()
	b.ResetTimer()
	var pending sync.WaitGroup
	for i := range b.N {
		pending.Add(1)
		g.CommitOffsets(commitRequest(names[i%len(names)], "", -1, int64(i)), func(r CommitReply) {
			if r.Err != nil {
				b.Error(r.Err)
			}
			pending.Done()
		})
		if i%1000 == 999 {
			pending.Wait()
		}
	}
	pending.Wait()
}

// BenchmarkJoinBigGroup is one join into a group that 2,000 members form at the same time.
func BenchmarkJoinBigGroup(b *testing.B) {
	const size = 2000
	for n := 0; n < b.N; n += size {
		g := startBench(b)
		var pending sync.WaitGroup
		for i := range size {
			pending.Add(1)
			r := joinRequest("big", "")
			r.ClientID = fmt.Sprint(i)
			g.Join(r, func(r JoinReply) {
				if r.Err != nil {
					b.Error(r.Err)
				}
				pending.Done()
			})
		}
		pending.Wait()
	}
}
