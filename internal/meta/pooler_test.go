package meta_test

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/internal/meta"
)

// pooler is a transaction-mode pooler at its worst: after each transaction the client gets another server session, the
// one that has been idle longest, and a session is cleaned of prepared statements when it changes hands. It accepts
// application_name as the only startup parameter.
type pooler struct {
	idle   chan *pgconn.HijackedConn
	url    string
	ignore bool // startup parameters, instead of refusing them
}

const poolerSessions = 3

func newPooler(t *testing.T, target string, ignore bool) *pooler {
	t.Helper()
	p := &pooler{idle: make(chan *pgconn.HijackedConn, poolerSessions), ignore: ignore}
	for range poolerSessions {
		c, err := pgconn.Connect(context.Background(), target)
		fatal(t, err)
		h, err := c.Hijack()
		fatal(t, err)
		p.idle <- h
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(t, err)
	u, err := url.Parse(target)
	fatal(t, err)
	u.Host = l.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	p.url = u.String()
	var clients sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		clients.Wait()
		close(p.idle)
		for h := range p.idle {
			h.Conn.Close()
		}
	})
	clients.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			clients.Go(func() {
				defer c.Close()
				if err := p.serve(c); err != nil {
					t.Errorf("pooler: %v", err)
				}
			})
		}
	})
	return p
}

// serve returns nil when the client goes between two transactions.
func (p *pooler) serve(c net.Conn) error {
	client := pgproto3.NewBackend(c, c)
	start, err := client.ReceiveStartupMessage()
	if err != nil {
		return nil
	}
	for name := range start.(*pgproto3.StartupMessage).Parameters {
		if !p.ignore && name != "user" && name != "database" && name != "application_name" {
			client.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "08P01", Message: "unsupported startup parameter: " + name})
			_ = client.Flush()
			return nil
		}
	}
	client.Send(&pgproto3.AuthenticationOk{})
	client.Send(&pgproto3.ParameterStatus{Name: "server_version", Value: "15.0"})
	client.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	client.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if err := client.Flush(); err != nil {
		return nil
	}
	for {
		msg, err := client.Receive()
		if err != nil {
			return nil
		}
		if _, ok := msg.(*pgproto3.Terminate); ok {
			return nil
		}
		h := <-p.idle
		err = transaction(client, h.Frontend, msg)
		p.idle <- h
		if err != nil {
			return err
		}
	}
}

// transaction passes messages until the server is outside of a transaction again.
func transaction(client *pgproto3.Backend, server *pgproto3.Frontend, msg pgproto3.FrontendMessage) error {
	for {
		server.Send(msg)
		if err := server.Flush(); err != nil {
			return err
		}
		switch msg.(type) {
		case *pgproto3.Sync, *pgproto3.Query:
			status, err := answer(client, server)
			if err != nil {
				return err
			}
			if status == 'I' {
				return clean(server)
			}
		}
		var err error
		if msg, err = client.Receive(); err != nil {
			return err
		}
	}
}

func answer(client *pgproto3.Backend, server *pgproto3.Frontend) (status byte, err error) {
	for {
		msg, err := server.Receive()
		if err != nil {
			return 0, err
		}
		client.Send(msg)
		if err := client.Flush(); err != nil {
			return 0, err
		}
		if ready, ok := msg.(*pgproto3.ReadyForQuery); ok {
			return ready.TxStatus, nil
		}
	}
}

// clean takes away what a session must not keep for the next client.
func clean(server *pgproto3.Frontend) error {
	server.Send(&pgproto3.Query{String: "DISCARD ALL"})
	if err := server.Flush(); err != nil {
		return err
	}
	for {
		msg, err := server.Receive()
		if err != nil {
			return err
		}
		if _, ok := msg.(*pgproto3.ReadyForQuery); ok {
			return nil
		}
	}
}

func TestConformsThroughPooler(t *testing.T) {
	t.Parallel()
	conform(t, func() (*meta.Postgres, string) {
		url := pgtest.URL(t)
		px := newPooler(t, url, false)
		return open(t, func(o *meta.Options) { o.URL, o.Pooler = px.url, true }), url
	})
}

// TestDurabilityThroughPooler: synchronous_commit is that of the pool in each transaction, and nobody else's.
func TestDurabilityThroughPooler(t *testing.T) {
	t.Parallel()
	target := pgtest.URL(t)
	exec(t, target, `ALTER DATABASE `+database(t, target)+` SET synchronous_commit = off`)
	px := newPooler(t, target, false)
	p := open(t, func(o *meta.Options) { o.URL, o.Pooler = px.url, true })
	exec(t, target, `CREATE TABLE seen (op text, setting text);
		CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (TG_TABLE_NAME, current_setting('synchronous_commit')); RETURN NULL; END $$;
		CREATE TRIGGER look AFTER INSERT OR UPDATE ON pgbroker_internal.group_offsets EXECUTE FUNCTION look();
		CREATE TRIGGER look AFTER INSERT OR UPDATE ON pgbroker_internal.log_offsets EXECUTE FUNCTION look();
		CREATE TRIGGER look AFTER INSERT OR UPDATE ON pgbroker_internal.topics EXECUTE FUNCTION look();`)
	o, shards := owned(t, p)
	ctx := context.Background()
	_, _, err := p.CreateTopics(ctx, o, []meta.NewTopic{{ID: meta.UUID{9}, Name: "t", Replicas: [][]int32{{1}}}})
	fatal(t, err)
	fatal(t, p.SaveLogOffsets(ctx, []meta.LogOffset{{TopicID: meta.UUID{9}}}))
	fatal(t, p.CommitShards(ctx, 1, []meta.ShardChange{offsetChange(shards[0], 0)}))
	got := query(t, target, `SELECT DISTINCT op, setting FROM seen ORDER BY 1`)
	if len(got) != 3 || got[0] != "group_offsets | on" || got[1] != "log_offsets | off" || got[2] != "topics | on" {
		t.Errorf("synchronous_commit by table: %v", got)
	}
}

func database(t *testing.T, target string) string {
	return query(t, target, `SELECT quote_ident(current_database())`)[0]
}

// TestPoolerIsFound: whether it refuses or swallows what a session is started with.
func TestPoolerIsFound(t *testing.T) {
	t.Parallel()
	for _, ignore := range []bool{false, true} {
		px := newPooler(t, pgtest.URL(t), ignore)
		p := open(t, func(o *meta.Options) { o.URL = px.url })
		_, shards := owned(t, p)
		fatal(t, p.CommitShards(context.Background(), 1, []meta.ShardChange{offsetChange(shards[0], 0)}))
		if p.StatementCounts()["set_local"] == 0 {
			t.Errorf("ignore=%v: settings are those of the session", ignore)
		}
		p.Close()
	}
	p := open(t)
	owned(t, p)
	if n := p.StatementCounts()["set_local"]; n != 0 {
		t.Errorf("a pooler was found where none is: %d", n)
	}
}
