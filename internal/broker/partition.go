package broker

import (
	"errors"
	"sync/atomic"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

// Why a partition cannot be served.
var (
	errNotLeader = errors.New("this broker does not lead the partition")
	errOffline   = errors.New("partition is offline: its log directory entry is missing")
)

// partition joins a log with the right to lead it. It is made once and lives until its topic is deleted.
type partition struct {
	broker *Broker
	key    partitionKey
	name   string // of the topic
	lead   atomic.Pointer[leadership]
}

// leadership is one term of one partition. A partition without one answers errNotLeader or why.
type leadership struct {
	row meta.Partition
	log *segstore.Log
	err error // set when log is nil
}

func newPartition(b *Broker, id meta.UUID, name string, n int32) *partition {
	p := &partition{broker: b, key: partitionKey{id, n}, name: name}
	p.lead.Store(&leadership{err: errNotLeader})
	return p
}

// leader returns the log and the term it may be written under.
func (p *partition) leader() (*leadership, error) {
	l := p.lead.Load()
	if l.log == nil {
		return nil, l.err
	}
	return l, nil
}

// begin opens the term of row on log. The state file must name the row already.
func (p *partition) begin(row meta.Partition, log *segstore.Log) error {
	if _, err := log.BeginTerm(row.Term); err != nil {
		return err
	}
	next := &leadership{row: row, log: log}
	log.OnProgress(func() { p.advance(next) })
	p.lead.Store(next)
	p.advance(next)
	return nil
}

// advance moves the high watermark after the log's own position moved.
func (p *partition) advance(l *leadership) {
	o := l.log.Offsets()
	self := o.Durable
	if p.broker.durability == segstore.Relaxed {
		self = o.End
	}
	l.log.SetHigh(coordinator.HighOf(self, nil, l.row.ISR, nil, 1))
}

// end takes the leadership away and says why.
func (p *partition) end(why error) { p.lead.Store(&leadership{err: why}) }
