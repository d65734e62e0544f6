package system

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

// freeze stops a broker's process as a pause of its machine does; thaw wakes it.
func (n *node) freeze() { n.signal(syscall.SIGSTOP) }
func (n *node) thaw()   { n.signal(syscall.SIGCONT) }

func (n *node) signal(s syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
}

// TestWokenBrokerIsFenced: a broker that sleeps longer than its lease, while another process takes over on a copy of its
// directory, wakes with requests in its sockets. It appends nothing, commits nothing, shows nothing, and ends.
func TestWokenBrokerIsFenced(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	ports := []int{harness.FreePort(t), harness.FreePort(t)}
	old := startNode(t, nodeOptions{url: url, port: ports[0], also: []string{fmt.Sprintf("127.0.0.1:%d", ports[1])}})
	next := launchNode(t, nodeOptions{url: url, dir: filepath.Join(t.TempDir(), "log"), port: ports[1], http: harness.FreePort(t), standby: true})
	old.createTopic("t", 2, nil)
	l := newLedger(2, 2, 300)
	p := startProducers(t, old, l, "t", time.Millisecond)
	l.awaitAcks(t, 300, 20*time.Second)

	// Clients of the old one alone, with connections that they have used.
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	only := func() *kgo.Client {
		c, err := kgo.NewClient(kgo.SeedBrokers(old.bootstrap), kgo.RequestRetries(0), kgo.RetryTimeout(time.Second), kgo.RequestTimeoutOverhead(time.Minute))
		must(t, err)
		t.Cleanup(c.Close)
		return c
	}
	committer, reader := kadm.NewClient(only()), only()
	var offset kadm.Offsets
	offset.AddOffset("t", 0, 7, -1)
	_, err := committer.CommitOffsets(ctx, "g", offset)
	must(t, err)
	fetch := fetchRequest("t", topicID(t, old, "t"), 0)
	if resp, err := fetch.RequestWith(ctx, brokerOne{reader}); err != nil || resp.ErrorCode != 0 {
		t.Fatalf("fetch: %+v, %v", resp, err)
	}

	old.freeze()
	copyDir(t, old.opts.dir, next.opts.dir)
	before := logBytes(t, old.opts.dir)
	next.awaitReady()
	type outcome struct {
		what string
		done bool
	}
	outcomes := make(chan outcome, 2)
	go func() {
		offset.AddOffset("t", 0, 999, -1)
		got, err := committer.CommitOffsets(ctx, "g", offset)
		outcomes <- outcome{fmt.Sprintf("commit: %v %v", got.Error(), err), err == nil && got.Error() == nil}
	}()
	go func() {
		resp, err := fetch.RequestWith(ctx, brokerOne{reader})
		shown := false
		if err == nil {
			for _, topic := range resp.Topics {
				for _, p := range topic.Partitions {
					shown = shown || p.ErrorCode == 0 || len(p.RecordBatches) > 0
				}
			}
		}
		outcomes <- outcome{fmt.Sprintf("fetch: %+v %v", resp, err), shown}
	}()
	time.Sleep(300 * time.Millisecond) // the requests are in the sockets of a process that does not run
	woken := time.Now()
	old.thaw()
	for range 2 {
		if o := <-outcomes; o.done {
			t.Errorf("the old broker answered a %s", o.what)
		}
	}
	select {
	case <-old.exited:
	case <-time.After(20 * time.Second):
		t.Fatal("the old broker goes on")
	}
	ended := time.Since(woken)
	if code := old.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(old.stderr.String(), "another process has taken over") {
		t.Errorf("it ended with %d", code)
	}
	if after := logBytes(t, old.opts.dir); after != before {
		t.Errorf("the old log had %d bytes and has %d", before, after)
	}
	l.awaitAcks(t, 300, 30*time.Second)
	p.finish(t)
	l.verify(t, next, "t")
	told, err := kadm.NewClient(next.client()).FetchOffsets(ctx, "g")
	must(t, err)
	if o, ok := told.Lookup("t", 0); !ok || o.At != 7 {
		t.Errorf("the new broker says offset %+v, want 7", o)
	}
	next.verifyStopped()
	t.Logf("the old broker ended %s after it was woken; %d acknowledged, none lost", ended.Round(time.Millisecond), l.ackedCount())
}

// logBytes is the size of all segments.
func logBytes(t *testing.T, dir string) (sum int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".log") {
			return err
		}
		info, err := d.Info()
		sum += info.Size()
		return err
	}))
	return sum
}

// TestSleepingBrokerKeepsItsDirectory: on a shared directory the lock of a process that sleeps cannot be taken, so its lease
// alone makes no other broker. It goes on when it wakes.
func TestSleepingBrokerKeepsItsDirectory(t *testing.T) {
	t.Parallel()
	n := startNode(t, nodeOptions{})
	n.createTopic("t", 1, nil)
	l := newLedger(1, 1, 100)
	p := startProducers(t, n, l, "t", time.Millisecond)
	l.awaitAcks(t, 100, 20*time.Second)
	standby := launchNode(t, nodeOptions{url: n.opts.url, dir: n.opts.dir, http: harness.FreePort(t), standby: true})
	standby.awaitWaiting("standby: broker 1 at ")
	n.freeze()
	standby.awaitWaiting("standby: " + n.opts.dir + " is locked by a process of this machine that does not renew the lease of broker 1")
	n.thaw()
	standby.awaitWaiting("standby: broker 1 at ")
	l.awaitAcks(t, 100, 20*time.Second)
	p.finish(t)
	l.verify(t, n, "t")
}

// TestCopiedDirectoryIsNoLicence: a copy of the log directory has the directory's id but not its lock, so a process on it is
// refused while the broker lives, before it touches a file.
func TestCopiedDirectoryIsNoLicence(t *testing.T) {
	t.Parallel()
	n := startNode(t, nodeOptions{})
	n.createTopic("t", 1, nil)
	l := newLedger(1, 1, 100)
	p := startProducers(t, n, l, "t", time.Millisecond)
	l.awaitAcks(t, 100, 20*time.Second)
	l.watchGaps()
	copied := filepath.Join(t.TempDir(), "copy")
	copyDir(t, n.opts.dir, copied)
	began := time.Now()
	code, stderr := n.startSecond(copied)
	if code == 0 || !strings.Contains(stderr, "broker 1 is already running at PLAINTEXT://"+n.bootstrap) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	t.Logf("refused after %s: %s", time.Since(began).Round(time.Millisecond), harness.Tail(stderr, 1))
	l.awaitAcks(t, 100, 20*time.Second)
	if gap := l.longestGap(); gap > quietLimit {
		t.Errorf("the broker did not answer for %s", gap)
	}
	// A killed broker's lease is waited for on a copy.
	p.finish(t)
	n.kill()
	began = time.Now()
	second := startNode(t, nodeOptions{url: n.opts.url, dir: copied, set: []string{"auto.create.topics.enable=false"}})
	t.Logf("ready %s after the broker was killed", time.Since(began).Round(time.Millisecond))
	if !strings.Contains(second.stderr.String(), "waiting for its lease to end") {
		t.Error("it did not wait for the lease")
	}
}

// TestFencingByLease: with broker.fencing=lease nothing is acknowledged once the lease has ended, and all is when Postgres is
// back.
func TestFencingByLease(t *testing.T) {
	t.Parallel()
	pg := pgtest.Server(t)
	n := startNode(t, nodeOptions{url: pg.URL("postgres"), set: []string{"broker.fencing=lease"}})
	n.createTopic("t", 1, nil)
	l := newLedger(1, 1, 100)
	p := startProducers(t, n, l, "t", time.Millisecond)
	l.awaitAcks(t, 100, 20*time.Second)
	must(t, pg.Pause())
	paused := time.Now()
	time.Sleep(lease + 500*time.Millisecond)
	silent := l.ackedCount()
	time.Sleep(2 * time.Second)
	if more := l.ackedCount() - silent; more != 0 {
		t.Errorf("%d records were acknowledged without a lease", more)
	}
	must(t, pg.Resume())
	resumed := time.Now()
	l.awaitAcks(t, 100, 20*time.Second)
	t.Logf("%d acknowledged before the lease ended; Postgres was away for %s; 100 more %s after it was back", silent, resumed.Sub(paused).Round(time.Millisecond), time.Since(resumed).Round(time.Millisecond))
	p.finish(t)
	l.verify(t, n, "t")
}
