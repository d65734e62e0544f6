package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/pgbroker/pgbroker/test/history"
)

// pipeline is a topic, a group that copies it in transactions, and the copy.
type pipeline struct {
	in, out, group string
	protocol       string // of the group
	oldTxns        bool   // the transactions of before KIP-890
}

func (p pipeline) String() string {
	if p.oldTxns {
		return p.protocol + " group, old transactions"
	}
	return p.protocol + " group, new transactions"
}

// oldTransactions are the versions of a client from before KIP-890.
func oldTransactions() *kversion.Versions {
	old := kversion.Stable()
	for key, highest := range map[kmsg.Key]int16{kmsg.Produce: 11, kmsg.EndTxn: 4, kmsg.TxnOffsetCommit: 4, kmsg.AddPartitionsToTxn: 3} {
		old.SetMaxKeyVersion(key.Int16(), highest)
	}
	return old
}

func (p pipeline) groupOpts() []kgo.Opt {
	opts := []kgo.Opt{kgo.ConsumerGroup(p.group), kgo.ConsumeTopics(p.in), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.SessionTimeout(4 * time.Second), kgo.HeartbeatInterval(300 * time.Millisecond), kgo.RebalanceTimeout(6 * time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	if p.protocol == history.Consumer {
		opts = append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	if p.oldTxns {
		opts = append(opts, kgo.MaxVersions(oldTransactions()))
	}
	return opts
}

// copyRecords is one instance of the pipeline. It ends its life at random and begins anew, so that the group rebalances.
func (r *run) copyRecords(ctx context.Context, p pipeline, instance int, number int32) {
	name := fmt.Sprintf("%s-%d", p.group, instance)
	random := r.random(name)
	for ctx.Err() == nil {
		r.copyLife(ctx, p, name, number, random)
		pause(ctx, random, 300*time.Millisecond)
	}
}

func (r *run) copyLife(ctx context.Context, p pipeline, name string, number int32, random *rand.Rand) {
	process := r.recorder.Process(name)
	life := &mortal{}
	s, err := kgo.NewGroupTransactSession(append(append(r.clientOpts(), p.groupOpts()...), kgo.Dialer(life.dial), kgo.TransactionalID(name), kgo.TransactionTimeout(transactionTimeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))...)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer s.Close()
	if r.noteProducerID(ctx, s.Client(), process, name) != nil {
		return
	}
	living, kill := context.WithCancel(context.WithoutCancel(ctx)) // what is ended may be ended when ctx is over
	defer kill()
	if random.IntN(3) == 0 { // it dies in the middle of something, and its session has to expire
		death := time.AfterFunc(time.Second+time.Duration(random.IntN(6000))*time.Millisecond, func() {
			life.die()
			kill()
			r.clientsDied.Add(1)
		})
		defer death.Stop()
	}
	ends := time.Now().Add(2*time.Second + time.Duration(random.IntN(8000))*time.Millisecond)
	for assignment := 0; ctx.Err() == nil && time.Now().Before(ends); assignment++ {
		if living.Err() != nil || !r.copySome(ctx, living, p, s, process, name, number, assignment, random) {
			return
		}
	}
}

// copySome is one transaction; false says that the session is of no more use.
func (r *run) copySome(ctx, living context.Context, p pipeline, s *kgo.GroupTransactSession, process *history.Process, name string, number int32, assignment int, random *rand.Rand) bool {
	txn := r.recorder.Unique()
	polling, cancel := context.WithTimeout(ctx, time.Second)
	// Records of one poll may precede a rebalance and the next ones follow it, so each poll is an assignment of its own.
	poll := process.Invoke(history.Op{Kind: history.Poll, Committed: true, Assignment: assignment, Txn: txn})
	fetches := s.PollRecords(polling, 1+random.IntN(60))
	cancel()
	records := fetches.Records()
	poll.Done(history.OK, func(o *history.Op) { o.Records = recordsOf(records) })
	if len(records) == 0 {
		return true
	}
	if err := s.Begin(); err != nil {
		return false
	}
	for _, rec := range records {
		v, raw := history.Value{Producer: number, Number: r.recorder.Unique(), Txn: txn, Copied: true, SourcePartition: rec.Partition, SourceOffset: rec.Offset}.Encode(0)
		out := random.Int32N(r.topics[p.out])
		pending := process.Invoke(history.Op{Kind: history.Send, Topic: p.out, Partition: out, Value: v, Acks: -1, Txn: txn, Transactional: name})
		s.Produce(ctx, &kgo.Record{Topic: p.out, Partition: out, Value: raw}, func(rec *kgo.Record, err error) { done(pending, rec, err) })
	}
	var commits []*history.Pending
	member, generation := s.Client().GroupMetadata()
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		if n := len(f.Records); n > 0 {
			commits = append(commits, process.Invoke(history.Op{Kind: history.CommitOffset, Group: p.group, Topic: f.Topic, Partition: f.Partition,
				Offset: f.Records[n-1].Offset + 1, Metadata: member, Txn: txn, Protocol: p.protocol})) // franz-go's metadata is the member
		}
	})
	commit := kgo.TryCommit
	if random.IntN(10) == 0 {
		commit = kgo.TryAbort
	}
	end := process.Invoke(history.Op{Kind: history.End, Txn: txn, Commit: bool(commit)})
	ending, cancelEnd := context.WithTimeout(living, settleLimit)
	defer cancelEnd()
	committed, err := s.End(ending, commit)
	if err != nil {
		end.Done(history.Info, func(o *history.Op) { o.Note = err.Error() })
		return false
	}
	end.Done(history.OK, func(o *history.Op) { o.Commit = committed })
	if !committed {
		return true
	}
	memberAfter, generationAfter := s.Client().GroupMetadata()
	for _, c := range commits {
		c.Done(history.OK, func(o *history.Op) {
			if member == memberAfter && generation == generationAfter {
				o.Member, o.Generation = member, generation
			}
		})
	}
	return true
}
