//go:build linux

package root

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/embedpg"
	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

const (
	defaultCuts = 5
	// cutCheckLimit bounds a restart after a power cut with everything that is read then.
	cutCheckLimit = time.Minute
)

// machine is a broker whose log lies on a disk that loses power, and with both set the Postgres beside it too.
type machine struct {
	kind, durability string
	both             bool

	t      *testing.T
	disk   *imageDisk
	broker *harness.Broker
	pg     *embedpg.Server // nil unless both
	port   int             // of Postgres
	work   *harness.Work
	random *rand.Rand
}

func (m *machine) String() string {
	if m.both {
		return m.kind + "-" + m.durability + "-both"
	}
	return m.kind + "-" + m.durability
}

// needDisk skips a test whose programs are missing, or fails it where nothing may be skipped.
func needDisk(t *testing.T, kind string) {
	t.Helper()
	for _, program := range []string{"mkfs." + kind, "mount"} {
		harness.Need(t, program)
	}
}

// TestPowerCuts cuts the power of the log's file system, half of the times of Postgres' too, while clients produce, and
// wants after the restart: strict has lost nothing that was acknowledged; relaxed has lost the tail of a partition at
// most; no offset is used twice under one leader epoch; each transaction is there as a whole or not at all, as its
// client was told. PGBROKER_TORTURE_CUTS says how many cuts, PGBROKER_TORTURE_SEED repeats the choices.
func TestPowerCuts(t *testing.T) {
	needRoom(t)
	cuts, seed := defaultCuts, uint64(time.Now().UnixNano())
	if v, err := strconv.Atoi(os.Getenv("PGBROKER_TORTURE_CUTS")); err == nil {
		cuts = v
	}
	if v, err := strconv.ParseUint(os.Getenv("PGBROKER_TORTURE_SEED"), 10, 64); err == nil {
		seed = v
	}
	t.Logf("PGBROKER_TORTURE_SEED=%d", seed)
	machines := []*machine{
		{kind: "ext4", durability: "strict", both: true}, {kind: "xfs", durability: "strict"},
		{kind: "xfs", durability: "relaxed", both: true}, {kind: "ext4", durability: "relaxed"},
		{kind: "xfs", durability: "strict", both: true}, {kind: "ext4", durability: "strict"},
		{kind: "ext4", durability: "relaxed", both: true}, {kind: "xfs", durability: "relaxed"},
	}
	if cuts < 4*len(machines) { // not worth the time to set all of them up
		machines = machines[:4]
	}
	began, done := time.Now(), 0
	var totals harness.Totals
	for i, m := range machines {
		share := cuts / len(machines)
		if i < cuts%len(machines) {
			share++
		}
		t.Run(m.String(), func(t *testing.T) {
			m.random = rand.New(rand.NewPCG(seed, uint64(i)))
			m.start(t)
			for n := range share {
				if !m.cut(n) {
					break
				}
				done++
			}
			totals.Add(m.work.Totals)
			t.Logf("%d power cuts: %v", share, m.work.Totals)
		})
	}
	t.Logf("torture: part=power-cuts seed=%d cuts=%d %v seconds=%.0f", seed, done, totals, time.Since(began).Seconds())
	if done < cuts || totals.Acknowledged < 100*cuts {
		t.Errorf("only %d of %d power cuts hit, with %d records acknowledged", done, cuts, totals.Acknowledged)
	}
}

// start sets the machine up.
func (m *machine) start(t *testing.T) {
	t.Helper()
	needDisk(t, m.kind)
	m.t = t
	m.disk = newImageDisk(t, m.kind)
	url := ""
	if m.both {
		m.startPostgres()
		t.Cleanup(m.stopPostgres)
		m.disk.sync() // how a cluster is made is not what is tested
		url = m.pg.URL("postgres")
	} else {
		url = pgtest.URL(t)
	}
	m.broker = harness.NewBroker(t, harness.BrokerOptions{Postgres: url, Dir: filepath.Join(m.disk.dir, "log"), Set: []string{
		"durability=" + m.durability, "log.flush.offset.checkpoint.interval.ms=300", "auto.create.topics.enable=false"}})
	m.broker.MustStart()
	ctx, cancel := context.WithTimeout(t.Context(), cutCheckLimit)
	defer cancel()
	var err error
	if m.work, err = harness.NewWork(ctx, m.broker.Bootstrap(), m.durability == "strict", m.random); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) startPostgres() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), cutCheckLimit)
	defer cancel()
	server, err := embedpg.Start(ctx, embedpg.Options{DataDir: filepath.Join(m.disk.dir, "pg"), Port: m.port, EndWithOwner: true})
	if err != nil {
		m.t.Fatalf("start Postgres: %v", err)
	}
	m.pg, m.port = server, server.Port()
}

// stopPostgres kills it and gives its directory back.
func (m *machine) stopPostgres() {
	_ = m.pg.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = m.pg.Stop(ctx)
}

// cut is one life with a power cut at its end, and a look at what is left; false if something is wrong.
func (m *machine) cut(n int) bool {
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*cutCheckLimit)
	defer cancel()
	if err := m.work.Begin(ctx); err != nil {
		m.t.Errorf("cut %d: %v", n, err)
		return false
	}
	m.live(ctx)
	err := m.fail()
	m.broker.Kill()
	if m.both {
		m.stopPostgres()
	}
	m.work.End()
	if err != nil {
		m.t.Errorf("cut %d: %v", n, err)
		return false
	}
	m.disk.unmount()
	m.disk.mount()
	if found := m.broker.VerifyFiles(); strings.Contains(found, "ERROR ") {
		m.t.Errorf("cut %d: log verify before the start:\n%s", n, found)
	}
	if m.both {
		m.startPostgres()
	}
	if err := m.broker.Start(); err != nil {
		m.t.Errorf("cut %d: %v\n%s", n, err, harness.Tail(m.broker.Log.String(), 20))
		return false
	}
	problems := m.work.Check(ctx)
	if found := m.broker.VerifyFiles(); strings.Contains(found, "ERROR ") {
		problems = append(problems, fmt.Errorf("log verify after the start:\n%s", found))
	}
	for i, err := range problems {
		if m.t.Errorf("cut %d: %v", n, err); i == 10 {
			break
		}
	}
	return !m.t.Failed()
}

// fail cuts the power. All processes stop first, as they would with the machine: an fdatasync that runs while ext4 is shut
// down can report success although the journal was given up under it, and nobody would have heard of that.
func (m *machine) fail() error {
	err := m.broker.Freeze()
	if m.both {
		err = errors.Join(err, m.pg.Pause())
	}
	return errors.Join(err, m.disk.cutPower())
}

// live waits until clients have been served, and then a random time more: when the power fails is part of the test.
func (m *machine) live(ctx context.Context) {
	for m.work.AckedInLife() < 50 && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(time.Duration(m.random.IntN(1200)) * time.Millisecond)
}
