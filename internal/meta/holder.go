package meta

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Holder is the process that a broker id belongs to, or belonged to last.
type Holder struct {
	Incarnation int64 // of its registration, 0 nobody ever registered
	Process     UUID
	// Running: it has neither given the lease back nor, by the database's clock, let it run out.
	Running   bool
	Stopped   bool          // it gave the lease back
	Until     time.Time     // when the lease ends, or has ended, by the database's clock
	Remaining time.Duration // until then, negative afterwards
	Lease     time.Duration // a whole one
	Beat      int64         // rises with each renewal
	LogDirs   []UUID
	Endpoints []Endpoint
	// ServerMark is the server that says all this. Another one may have forgotten the last renewals.
	ServerMark string
}

// lockPart is how many bytes of a process id say which lock the process holds.
const lockPart = 8

// NewProcessID names a process and the lock of its log directory. lock is a text that is the same for two processes only
// if the same kernel guards the same lock file for both; "" where that is not known.
func NewProcessID(lock string) (id UUID) {
	_, _ = rand.Read(id[:]) // never fails
	if lock != "" {
		sum := sha256.Sum256([]byte(lock))
		copy(id[:lockPart], sum[:])
	}
	return id
}

// SameLock says whether two processes cannot both live: they hold the same lock. A copy of a log directory has another
// lock, and so has the same directory on another machine.
func SameLock(a, b UUID) bool { return bytes.Equal(a[:lockPart], b[:lockPart]) }

const sqlHolder = `/* holder */
SELECT incarnation, process_id, state, lease_until, (extract(epoch FROM lease_until - clock_timestamp()) * 1000000)::bigint, lease_ms, beat, log_dirs, endpoints::text
FROM pgbroker_internal.brokers WHERE broker_id = $1`

// Holder implements Control.
func (p *Postgres) Holder(ctx context.Context, broker int32) (Holder, error) {
	var h Holder
	mark, err := p.ServerMark(ctx)
	if err != nil {
		return h, fmt.Errorf("look for the holder of broker %d: %w", broker, err)
	}
	err = p.tx(ctx, p.control, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(ctx context.Context, tx pgx.Tx) error {
		h = Holder{ServerMark: mark}
		var state int16
		var micros, leaseMs int64
		var dirs []pgtype.UUID
		var endpoints string
		err := tx.QueryRow(ctx, sqlHolder, broker).Scan(&h.Incarnation, &h.Process, &state, &h.Until, &micros, &leaseMs, &h.Beat, &dirs, &endpoints)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		h.LogDirs = column(dirs, func(d *pgtype.UUID) UUID { return d.Bytes })
		h.describe(BrokerState(state), time.Duration(micros)*time.Microsecond, time.Duration(leaseMs)*time.Millisecond)
		return json.Unmarshal([]byte(endpoints), &h.Endpoints)
	})
	if err != nil {
		return Holder{}, fmt.Errorf("look for the holder of broker %d: %w", broker, err)
	}
	return h, nil
}

func (h *Holder) describe(s BrokerState, remaining, lease time.Duration) {
	h.Remaining, h.Lease = remaining, lease
	h.Stopped = s == BrokerStopped
	h.Running = (s == BrokerLive || s == BrokerStopping) && remaining > 0
}
