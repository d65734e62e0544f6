package meta_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/internal/meta"
)

func is(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

// owned is a store with a broker that has taken all shards.
func owned(t testing.TB, p *meta.Postgres) (meta.Owner, []meta.Shard) {
	t.Helper()
	ctx := context.Background()
	fatal(t, p.Migrate(ctx))
	_, err := p.Bootstrap(ctx)
	fatal(t, err)
	reg, err := p.Register(ctx, meta.Registration{BrokerID: 1, ProcessID: meta.UUID{1}, Lease: time.Hour, LogDirs: []meta.UUID{{2}}})
	fatal(t, err)
	o := meta.Owner{BrokerID: 1, Incarnation: reg.Incarnation}
	shards, err := p.TakeShards(ctx, o, nil)
	fatal(t, err)
	return o, shards
}

func offsetChange(s meta.Shard, seq int64) meta.ShardChange {
	return meta.ShardChange{Shard: s.Shard, Term: s.Term, Seq: seq,
		Offsets: []meta.OffsetRow{{Group: "g", Offset: seq + 1, CommittedAt: time.Now(), Version: seq + 1}}}
}

// TestUnknownCommit breaks the connection of a commit before and after the server has seen it.
func TestUnknownCommit(t *testing.T) {
	t.Parallel()
	px := newProxy(t, pgtest.URL(t))
	p, ctx := openAt(t, px.url), context.Background()
	_, shards := owned(t, p)
	seq := int64(0)
	fatal(t, p.CommitShards(ctx, 1, []meta.ShardChange{offsetChange(shards[0], seq)})) // prepares the statements
	seq++
	for _, a := range []action{lose, swallow, lose, swallow} {
		px.arm(func([]byte) action { return a })
		change := []meta.ShardChange{offsetChange(shards[0], seq)}
		is(t, p.CommitShards(ctx, 1, change), meta.ErrUnknownOutcome)
		got, err := p.ResolveShards(ctx, 1, meta.Unknown(change...))
		fatal(t, err)
		if took := a == swallow; got[0].TookEffect != took {
			t.Fatalf("took effect is %v, want %v", got[0].TookEffect, took)
		}
		rows, err := p.LoadShards(ctx, 1, shards[:1])
		fatal(t, err)
		want := seq + 1
		if a == lose {
			want = rows[0].Offsets[0].Version
			if want > seq {
				t.Fatalf("the lost commit wrote version %d", want)
			}
		}
		if got := rows[0].Offsets[0].Offset; got != want {
			t.Fatalf("offset %d, want %d", got, want)
		}
		seq = got[0].Seq
		fatal(t, p.CommitShards(ctx, 1, []meta.ShardChange{offsetChange(shards[0], seq)}))
		seq++
	}
}

// TestRegisterResolvesItself: one registration is one incarnation, whatever became of its COMMIT.
func TestRegisterResolvesItself(t *testing.T) {
	t.Parallel()
	px := newProxy(t, pgtest.URL(t))
	p, ctx := openAt(t, px.url), context.Background()
	owned(t, p)
	incarnation := int64(1)
	for _, a := range []action{lose, swallow} {
		px.arm(func(request []byte) action {
			if bytes.Contains(request, []byte("commit\x00")) {
				return a
			}
			return pass
		})
		before := px.cutCount()
		reg, err := p.Register(ctx, meta.Registration{BrokerID: 1, ProcessID: meta.UUID{1, 15: 3}, Lease: time.Hour, LogDirs: []meta.UUID{{2}}})
		fatal(t, err)
		if px.cutCount() != before+1 {
			t.Fatal("the COMMIT was not cut")
		}
		if incarnation++; reg.Incarnation != incarnation {
			t.Fatalf("incarnation %d, want %d", reg.Incarnation, incarnation)
		}
		if len(reg.Catalog.Brokers) != 1 || reg.Catalog.Brokers[0].Incarnation != incarnation {
			t.Fatalf("catalog of the registration: %+v", reg.Catalog.Brokers)
		}
		_, err = p.Renew(ctx, meta.Owner{BrokerID: 1, Incarnation: incarnation}, time.Hour, -1)
		fatal(t, err)
	}
}

// TestUnavailableBeforeCommit: a connection that breaks earlier surely changed nothing, and the caller hears that.
func TestUnavailableBeforeCommit(t *testing.T) {
	px := newProxy(t, pgtest.URL(t))
	p, ctx := openAt(t, px.url), context.Background()
	o, _ := owned(t, p)
	create := func() error {
		_, _, err := p.CreateTopics(ctx, o, []meta.NewTopic{{ID: meta.UUID{9}, Name: "t", Replicas: [][]int32{{1}}}})
		return err
	}
	for _, a := range []action{lose, swallow} {
		px.arm(func(request []byte) action {
			if bytes.Contains(request, []byte("topics_insert")) { // its Parse, on a session that has not seen it
				return a
			}
			return pass
		})
		is(t, create(), meta.ErrUnavailable)
	}
	fatal(t, create())
}

func TestKilledSessionsAreReplaced(t *testing.T) {
	url := pgtest.URL(t)
	p, ctx := openAt(t, url), context.Background()
	o, shards := owned(t, p)
	exec(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	deadline := time.Now().Add(5 * time.Second)
	for seq := int64(0); ; {
		_, renewErr := p.Renew(ctx, o, time.Hour, -1)
		err := p.CommitShards(ctx, 1, []meta.ShardChange{offsetChange(shards[0], seq)})
		if err == nil && renewErr == nil {
			return
		}
		for _, e := range []error{err, renewErr} {
			if e != nil && !errors.Is(e, meta.ErrUnavailable) && !errors.Is(e, meta.ErrUnknownOutcome) {
				t.Fatalf("after a kill: %v", e)
			}
		}
		switch {
		case err == nil:
			seq++
		case errors.Is(err, meta.ErrUnknownOutcome):
			resolve := meta.Unknown(offsetChange(shards[0], seq))
			got, err := p.ResolveShards(ctx, 1, resolve)
			for ; err != nil && time.Now().Before(deadline); got, err = p.ResolveShards(ctx, 1, resolve) {
				is(t, err, meta.ErrUnavailable)
			}
			fatal(t, err)
			seq = got[0].Seq
		}
		if time.Now().After(deadline) {
			t.Fatalf("not back: %v, %v", err, renewErr)
		}
	}
}

// TestReadOnlyServerIsLeft: after a demotion sessions live on and refuse writes; they must not be used again.
func TestReadOnlyServerIsLeft(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	url := server.URL("postgres")
	p, ctx := openAt(t, url), context.Background()
	o, _ := owned(t, p)
	exec(t, url, `ALTER SYSTEM SET default_transaction_read_only = on`)
	exec(t, url, `SELECT pg_reload_conf()`)
	var err error
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); { // until the session has read its settings
		if _, err = p.Renew(ctx, o, time.Hour, -1); err != nil {
			break
		}
	}
	is(t, err, meta.ErrUnavailable)
	err = p.WaitReady(ctx, time.Second, func(string) {})
	if err == nil || !strings.Contains(err.Error(), "read only") || !strings.Contains(err.Error(), "name the primary") {
		t.Fatalf("error is %v", err)
	}
	exec(t, url, `SET default_transaction_read_only = off`, `ALTER SYSTEM RESET default_transaction_read_only`)
	exec(t, url, `SELECT pg_reload_conf()`)
	fatal(t, p.WaitReady(ctx, 10*time.Second, func(string) {}))
	_, err = p.Renew(ctx, o, time.Hour, -1)
	fatal(t, err)
}

// TestStandbyWaitGivenUp: a COMMIT that stops waiting for its standby is answered with success and a warning, though the
// standby may lack it.
func TestStandbyWaitGivenUp(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	url := server.URL("postgres")
	p, ctx := openAt(t, url), context.Background()
	_, shards := owned(t, p)
	fatal(t, p.CommitShards(ctx, 1, []meta.ShardChange{offsetChange(shards[0], 0)}))
	exec(t, url, `ALTER SYSTEM SET synchronous_standby_names = 'nobody'`)
	exec(t, url, `SELECT pg_reload_conf()`)
	defer exec(t, url, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
	seq := int64(1)
	for deadline := time.Now().Add(10 * time.Second); ; seq++ { // until the setting is in force
		done := make(chan error, 1)
		go func() { done <- p.CommitShards(ctx, 1, []meta.ShardChange{offsetChange(shards[0], seq)}) }()
		waiting := false
		var err error
		for ended := false; !ended; {
			select {
			case err = <-done:
				ended = true
			case <-time.After(20 * time.Millisecond):
				n := query(t, url, `SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
				waiting = waiting || n[0] != "0"
			}
		}
		if waiting {
			is(t, err, meta.ErrUnknownOutcome)
			break
		}
		fatal(t, err)
		if time.Now().After(deadline) {
			t.Fatal("no commit waited for the standby")
		}
	}
	exec(t, url, `SET synchronous_commit = local`, `ALTER SYSTEM RESET synchronous_standby_names`)
	exec(t, url, `SELECT pg_reload_conf()`)
}

// TestLockOfUser: nothing waits longer than the lock timeout for what a user holds, and it is unavailability.
func TestLockOfUser(t *testing.T) {
	url := pgtest.URL(t)
	p := open(t, func(o *meta.Options) { o.URL, o.LockTimeout = url, 100*time.Millisecond })
	ctx := context.Background()
	o, shards := owned(t, p)
	c, err := pgx.Connect(ctx, url)
	fatal(t, err)
	defer c.Close(ctx)
	tx, err := c.Begin(ctx)
	fatal(t, err)
	_, err = tx.Exec(ctx, `LOCK pgbroker_internal.group_offsets, pgbroker_internal.brokers IN EXCLUSIVE MODE`)
	fatal(t, err)
	is(t, p.CommitShards(ctx, 1, []meta.ShardChange{offsetChange(shards[0], 0)}), meta.ErrUnavailable)
	_, err = p.Renew(ctx, o, time.Hour, -1)
	is(t, err, meta.ErrUnavailable)
	fatal(t, tx.Rollback(ctx))
	fatal(t, p.CommitShards(ctx, 1, []meta.ShardChange{offsetChange(shards[0], 0)}))
}

func TestWaitReadySaysWhatToDo(t *testing.T) {
	good := pgtest.URL(t)
	cfg, err := pgx.ParseConfig(good)
	fatal(t, err)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(t, err)
	address := closed.Addr().String()
	closed.Close()
	for name, c := range map[string]struct{ url, cause, fix string }{
		"refused":  {"postgres://u:hunter22@" + address + "/d", "connection refused", "check host and port"},
		"password": {strings.Replace(good, cfg.Password, "hunter22", 1), "SQLSTATE 28P01", "check user and password"},
		"database": {strings.Replace(good, "/"+cfg.Database, "/nothere", 1), "SQLSTATE 3D000", "create the database"},
		"host":     {"postgres://u:hunter22@nothere.invalid/d", "nothere.invalid", "check"},
	} {
		t.Run(name, func(t *testing.T) {
			p := openAt(t, c.url)
			err := p.WaitReady(context.Background(), 300*time.Millisecond, func(string) {})
			is(t, err, meta.ErrUnavailable)
			text := err.Error()
			for _, part := range []string{c.cause, c.fix, p.Address()} {
				if !strings.Contains(text, part) {
					t.Errorf("%q lacks %q", text, part)
				}
			}
			if strings.Contains(text, "hunter22") || strings.Contains(text, cfg.Password) || strings.Contains(text, "\n") {
				t.Errorf("password or line break in %q", text)
			}
		})
	}
}

func TestWaitReadyWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("takes six seconds")
	}
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(t, err)
	closed.Close()
	p := openAt(t, "postgres://u:hunter22@"+closed.Addr().String()+"/d")
	var lines []string
	start := time.Now()
	err = p.WaitReady(context.Background(), 6*time.Second, func(l string) { lines = append(lines, l) })
	is(t, err, meta.ErrUnavailable)
	if d := time.Since(start); d < 5*time.Second || d > 9*time.Second {
		t.Errorf("waited %s", d)
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "waiting for Postgres at "+p.Address()) || !strings.Contains(lines[0], "refused") {
		t.Errorf("lines: %q", lines)
	}
}

// TestCloseDoesNotWaitForAServerThatHangs: a process that was told to stop ends in time.
func TestCloseDoesNotWaitForAServerThatHangs(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	p := open(t, func(o *meta.Options) { o.URL = server.URL("postgres") })
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	is(t, p.Ping(ctx), meta.ErrUnavailable)
	began := time.Now()
	p.Close()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %s", took)
	}
}

func TestBadURLHidesThePassword(t *testing.T) {
	for _, url := range []string{"postgres://u:hunter22@h:port/d", "postgres://u:hunter22%zz@h/d", "postgres://u:hunter22@h/d?sslmode=odd",
		"password=hunter22 port=x", "hunter22", "postgres://u:hunter22@h/d?target_session_attrs=odd"} {
		_, err := meta.Open(context.Background(), meta.Options{URL: url})
		if err == nil || strings.Contains(err.Error(), "hunter22") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestOldServer: a stand-in says that it is Postgres 13.
func TestOldServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			greet(c, "13.22 (Debian 13.22-1)")
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	p := openAt(t, "postgres://u@"+l.Addr().String()+"/d?sslmode=disable")
	start := time.Now()
	err = p.WaitReady(context.Background(), 20*time.Second, func(string) {})
	is(t, err, meta.ErrVersion)
	if !strings.Contains(err.Error(), "13.22") || !strings.Contains(err.Error(), "at least 14") || time.Since(start) > 5*time.Second {
		t.Errorf("after %s: %v", time.Since(start), err)
	}
}

// greet plays a server until the client has asked its first question.
func greet(c net.Conn, version string) {
	defer c.Close()
	b := pgproto3.NewBackend(c, c)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ParameterStatus{Name: "server_version", Value: version})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if b.Flush() != nil {
		return
	}
	if _, err := b.Receive(); err != nil { // show transaction_read_only
		return
	}
	b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("transaction_read_only"), DataTypeOID: 25}}})
	b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte("off")}})
	b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SHOW")})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	_ = b.Flush()
	_, _ = b.Receive()
}

func TestPassfileSocketAndSeveralHosts(t *testing.T) {
	admin := pgtest.URL(t)
	cfg, err := pgx.ParseConfig(admin)
	fatal(t, err)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(t, err)
	dead := closed.Addr().(*net.TCPAddr).Port
	closed.Close()
	passfile := filepath.Join(t.TempDir(), "pgpass")
	fatal(t, os.WriteFile(passfile, []byte("*:*:*:postgres:"+cfg.Password+"\n"), 0o600))
	t.Setenv("PGPASSFILE", passfile)
	sockets := query(t, admin, `SELECT split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port')`)
	dir, port, _ := strings.Cut(sockets[0], " | ")
	for _, url := range []string{
		"host=" + dir + " port=" + port + " user=postgres dbname=" + cfg.Database,
		"postgres://postgres@127.0.0.1:" + strconv.Itoa(dead) + ",127.0.0.1:" + port + "/" + cfg.Database,
	} {
		p := openAt(t, url)
		fatal(t, p.WaitReady(context.Background(), 5*time.Second, func(string) {}))
		p.Close()
	}
}
