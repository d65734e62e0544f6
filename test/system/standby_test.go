package system

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/embedpg"
	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

// lease is broker.session.timeout.ms.
const lease = 3 * time.Second

// takeover is one way of losing the active broker.
type takeover struct {
	name     string
	postgres bool // its Postgres goes with it, and a synchronous standby is promoted
	// attach makes the log directory appear for the standby; nil: both share it.
	attach func(t *testing.T, from, to string)
	clean  bool // the active one is stopped, not killed
}

// TestStandbyTakesOver: clients that know both addresses go on where they were within a lease and 2 s, and nothing that was
// acknowledged is missing.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	for _, c := range []takeover{
		{name: "kill -9 in a shared directory"},
		{name: "kill -9 with the directory elsewhere", attach: copyDir},
		{name: "kill -9 and failover of Postgres in a shared directory", postgres: true},
		{name: "kill -9 and failover of Postgres with the directory elsewhere", postgres: true, attach: copyDir},
		{name: "clean stop in a shared directory", clean: true},
		{name: "clean stop with the directory elsewhere", clean: true, attach: copyDir},
	} {
		t.Run(c.name, c.run)
	}
}

func (c takeover) run(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	var promote func()
	url := ""
	if c.postgres {
		primary := pgtest.Server(t)
		second := pgtest.Standby(t, primary)
		must(t, primary.WaitForStandbys(ctx, true))
		url = bothServers(primary, second)
		promote = func() {
			must(t, primary.Immediate())
			must(t, second.WaitForStandbys(ctx, false))
			must(t, second.Promote(ctx))
		}
	} else {
		url = pgtest.URL(t)
	}
	ports := []int{harness.FreePort(t), harness.FreePort(t)}
	dir := filepath.Join(t.TempDir(), "log")
	active := startNode(t, nodeOptions{url: url, dir: dir, port: ports[0], also: []string{fmt.Sprintf("127.0.0.1:%d", ports[1])}})
	own := dir
	if c.attach != nil {
		own = filepath.Join(t.TempDir(), "log")
	}
	standby := launchNode(t, nodeOptions{url: url, dir: own, port: ports[1], http: harness.FreePort(t), standby: true})
	active.createTopic("t", 4, nil)
	l := newLedger(2, 4, 300)
	p := startProducers(t, active, l, "t", time.Millisecond)
	l.awaitAcks(t, 500, 20*time.Second)
	standby.awaitWaiting("standby: broker 1 at 127.0.0.1:")
	if _, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", ports[1]), time.Second); err == nil {
		t.Error("a standby that waits accepts clients")
	}

	began := time.Now()
	l.watchGaps()
	if c.clean {
		if _, err := active.stop(); err != nil {
			t.Fatal(err)
		}
		began = time.Now() // of the time without a broker; the gap also has the stop in it
	} else {
		active.kill()
	}
	if c.attach != nil {
		c.attach(t, dir, own)
	}
	if promote != nil {
		promote()
	}
	over := time.Since(began)
	standby.awaitReady()
	ready := time.Since(began)
	l.awaitAcks(t, 1, 30*time.Second)
	first := time.Since(began)
	l.awaitAcks(t, 500, 20*time.Second)
	p.finish(t)
	l.verify(t, standby, "t")
	t.Logf("first acknowledgement %s after the broker's end, ready after %s, directory and Postgres there after %s; longest gap %s, %d acknowledged, none lost",
		first.Round(time.Millisecond), ready.Round(time.Millisecond), over.Round(time.Millisecond), l.longestGap().Round(time.Millisecond), l.ackedCount())
	limit := lease + 2*time.Second // from the moment on which both are there
	if c.clean {
		limit = 2 * time.Second // the lease was given back
	}
	if first-over > limit {
		t.Errorf("the first acknowledgement came %s after directory and Postgres were there, want at most %s", first-over, limit)
	}
}

// bothServers is the URL of whichever of two servers can be written to.
func bothServers(primary, second *embedpg.Server) string {
	return strings.Replace(primary.URL("postgres"), primary.HostPort(), primary.HostPort()+","+second.HostPort(), 1) + "&target_session_attrs=read-write"
}

// copyDir is a volume that comes to another machine: the same files under another lock.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to+".new").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, os.Rename(to+".new", to))
}

// awaitWaiting waits until a standby is live and says on its HTTP address what it waits for.
func (n *node) awaitWaiting(want string) {
	n.t.Helper()
	at := fmt.Sprintf("http://127.0.0.1:%d", n.opts.http)
	var code int
	var body string
	eventually(n.t, 20*time.Second, "the standby waits", func() bool {
		code, body = get(at + "/readyz")
		return code == 503 && strings.HasPrefix(body, want)
	})
	if code, body := get(at + "/healthz"); code != 200 {
		n.t.Errorf("a standby that waits is not live: %d %s", code, body)
	}
	if _, body := get(at + "/metrics"); !strings.Contains(body, "\npgbroker_standby 1\n") {
		n.t.Error("pgbroker_standby is not 1")
	}
}

func get(url string) (code int, body string) {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(raw)
}

// TestStandbyStops: a signal ends a standby that waits at once, and it has changed nothing.
func TestStandbyStops(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	active := startNode(t, nodeOptions{url: url})
	standby := launchNode(t, nodeOptions{url: url, dir: filepath.Join(t.TempDir(), "not there"), http: harness.FreePort(t), standby: true})
	standby.awaitWaiting("standby: broker 1 at " + active.bootstrap + " holds the lease until ")
	status, stderr, err := command(t, 10*time.Second, "", harness.Binary(t), "status", "--http", fmt.Sprintf("127.0.0.1:%d", standby.opts.http))
	if err == nil || !strings.Contains(status, "standby") || !strings.Contains(status, "holds the lease until") {
		t.Errorf("status of a standby: %q %q %v", status, stderr, err)
	}
	took, err := standby.stop()
	if err != nil || took > time.Second {
		t.Errorf("the standby ended after %s with %v", took, err)
	}
	if _, err := os.Stat(standby.opts.dir); !os.IsNotExist(err) {
		t.Errorf("the standby made its directory: %v", err)
	}
	if lines := strings.Count(standby.stderr.String(), "holds the lease until"); lines != 1 {
		t.Errorf("%d lines about one state:\n%s", lines, standby.stderr.String())
	}
}

// TestTwoStandbysRace: of two standbys that wait for one broker exactly one takes its place, also when each has got a copy
// of the directory. The other one waits on, or ends; it serves nobody.
func TestTwoStandbysRace(t *testing.T) {
	t.Parallel()
	for _, copies := range []bool{false, true} {
		t.Run(fmt.Sprintf("copies=%t", copies), func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			ports := []int{harness.FreePort(t), harness.FreePort(t), harness.FreePort(t)}
			dir := filepath.Join(t.TempDir(), "log")
			var also []string
			for _, p := range ports[1:] {
				also = append(also, fmt.Sprintf("127.0.0.1:%d", p))
			}
			active := startNode(t, nodeOptions{url: url, dir: dir, port: ports[0], also: also})
			active.createTopic("t", 2, nil)
			var standbys []*node
			for _, p := range ports[1:] {
				own := dir
				if copies {
					own = filepath.Join(t.TempDir(), "log")
				}
				s := launchNode(t, nodeOptions{url: url, dir: own, port: p, http: harness.FreePort(t), standby: true})
				s.awaitWaiting("standby: broker 1 at 127.0.0.1:")
				standbys = append(standbys, s)
			}
			l := newLedger(2, 2, 200)
			p := startProducers(t, active, l, "t", time.Millisecond)
			l.awaitAcks(t, 200, 20*time.Second)
			active.kill()
			if copies {
				for _, s := range standbys {
					copyDir(t, dir, s.opts.dir)
				}
			}
			winner, loser := standbys[0], standbys[1]
			select {
			case line := <-winner.ready:
				winner.ready <- line
			case line := <-loser.ready:
				loser.ready <- line
				winner, loser = loser, winner
			case <-time.After(60 * time.Second):
				t.Fatal("neither took over")
			}
			winner.awaitReady()
			l.awaitAcks(t, 200, 20*time.Second)
			select { // long enough for the other one to see two leases end
			case line := <-loser.ready:
				t.Fatalf("both serve: %s", line)
			case <-loser.exited:
				t.Logf("the other one ended: %s", harness.Tail(loser.stderr.String(), 1))
				if loser.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(loser.stderr.String(), "already running") {
					t.Errorf("it ended with exit code %d", loser.cmd.ProcessState.ExitCode())
				}
			case <-time.After(2*lease + time.Second):
				loser.awaitWaiting("standby: broker 1 at " + winner.bootstrap)
				t.Log("the other one waits")
			}
			p.finish(t)
			l.verify(t, winner, "t")
		})
	}
}
