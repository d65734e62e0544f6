package meta_test

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/internal/meta"
)

var update = flag.Bool("update", false, "write the golden files")

// query returns the rows of SQL as text, columns joined by " | ".
func query(t testing.TB, url, sql string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	fatal(t, err)
	defer c.Close(ctx)
	rows, err := c.Query(ctx, sql)
	fatal(t, err)
	out, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (string, error) {
		values, err := r.Values()
		text := make([]string, len(values))
		for i, v := range values {
			text[i] = fmt.Sprint(v)
		}
		return strings.Join(text, " | "), err
	})
	fatal(t, err)
	return out
}

func openAt(t testing.TB, url string) *meta.Postgres {
	t.Helper()
	p, err := meta.Open(context.Background(), meta.Options{URL: url})
	fatal(t, err)
	t.Cleanup(p.Close)
	return p
}

const sqlOurObjects = `SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname IN ('public', 'pgbroker', 'pgbroker_internal') AND c.relkind IN ('r', 'v') ORDER BY 1, 2`

func TestMigrateUpAndDown(t *testing.T) {
	url := pgtest.URL(t)
	p, ctx := openAt(t, url), context.Background()
	for range 2 {
		state, err := p.MigrationStatus(ctx)
		fatal(t, err)
		if state.Current != 0 || state.Latest < 1 || state.Dirty {
			t.Fatalf("state before: %+v", state)
		}
		if current, err := p.MigrationsCurrent(ctx); err != nil || current {
			t.Fatalf("current before: %v, %v", current, err)
		}
		fatal(t, p.Migrate(ctx))
		fatal(t, p.Migrate(ctx)) // nothing to do
		if current, err := p.MigrationsCurrent(ctx); err != nil || !current {
			t.Fatalf("current after: %v, %v", current, err)
		}
		_, err = p.Bootstrap(ctx)
		fatal(t, err)
		fatal(t, p.MigrateTo(ctx, 0))
		if left := query(t, url, sqlOurObjects); len(left) != 1 || left[0] != "pgbroker_internal | schema_migrations" {
			t.Fatalf("left after going down: %v", left)
		}
	}
	fatal(t, p.MigrateTo(ctx, 1))
}

func TestMigrateTogether(t *testing.T) {
	url := pgtest.URL(t)
	done := make(chan error)
	for range 4 {
		p := openAt(t, url)
		go func() { done <- p.Migrate(context.Background()) }()
	}
	for range 4 {
		fatal(t, <-done)
	}
}

func TestMigrateWaitsNotForEver(t *testing.T) {
	url, ctx := pgtest.URL(t), context.Background()
	c, err := pgx.Connect(ctx, url)
	fatal(t, err)
	defer c.Close(ctx)
	_, err = c.Exec(ctx, `SELECT pg_advisory_lock(x'706762726f6b6572'::bigint)`)
	fatal(t, err)
	p, err := meta.Open(ctx, meta.Options{URL: url, MigrateWait: 100 * time.Millisecond})
	fatal(t, err)
	t.Cleanup(p.Close)
	err = p.Migrate(ctx)
	is(t, err, meta.ErrUnavailable)
	if !strings.Contains(err.Error(), "another process migrates") {
		t.Errorf("error is %v", err)
	}
}

func TestFailedMigrationLeavesNothing(t *testing.T) {
	url := pgtest.URL(t)
	p, ctx := openAt(t, url), context.Background()
	exec(t, url, `CREATE SCHEMA pgbroker; CREATE TABLE pgbroker.topics ()`)
	if err := p.Migrate(ctx); err == nil || !strings.Contains(err.Error(), `relation "topics" already exists`) {
		t.Fatalf("error is %v", err)
	}
	if left := query(t, url, sqlOurObjects); len(left) != 1 {
		t.Fatalf("left: %v", left)
	}
	exec(t, url, `DROP SCHEMA pgbroker CASCADE`)
	fatal(t, p.Migrate(ctx))
}

func TestNewerSchemaIsRefused(t *testing.T) {
	url := pgtest.URL(t)
	p, ctx := openAt(t, url), context.Background()
	fatal(t, p.Migrate(ctx))
	exec(t, url, `UPDATE pgbroker_internal.schema_migrations SET version = 999`)
	if err := p.Migrate(ctx); err == nil || !strings.Contains(err.Error(), "use a newer program") {
		t.Fatalf("error is %v", err)
	}
}

// asRole makes a role with LOGIN only and returns the URL with it; the role goes when the test ends.
func asRole(t *testing.T, admin string) (role, roleURL string) {
	t.Helper()
	u, err := url.Parse(admin)
	fatal(t, err)
	role = "plain_" + strings.TrimPrefix(u.Path, "/")
	exec(t, admin, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD 'pw-%s' NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION`, role, role))
	exec(t, admin, `REVOKE ALL ON SCHEMA public FROM PUBLIC`)
	t.Cleanup(func() { exec(t, admin, fmt.Sprintf(`DROP OWNED BY %s CASCADE; DROP ROLE %s`, role, role)) })
	u.User = url.UserPassword(role, "pw-"+role)
	return role, u.String()
}

func TestInstallsAsPlainRole(t *testing.T) {
	admin := pgtest.URL(t)
	role, roleURL := asRole(t, admin)
	p, ctx := openAt(t, roleURL), context.Background()
	if err := p.Migrate(ctx); err == nil || !strings.Contains(err.Error(), "GRANT CREATE ON DATABASE") {
		t.Fatalf("without the right: %v", err)
	}
	u, _ := url.Parse(admin)
	exec(t, admin, fmt.Sprintf(`GRANT CREATE ON DATABASE %s TO %s`, strings.TrimPrefix(u.Path, "/"), role))
	fatal(t, p.Migrate(ctx))
	_, err := p.Bootstrap(ctx)
	fatal(t, err)
	reg, err := p.Register(ctx, meta.Registration{BrokerID: 1, Lease: time.Minute})
	fatal(t, err)
	renewed, err := p.Renew(ctx, meta.Owner{BrokerID: 1, Incarnation: reg.Incarnation}, time.Minute, -1)
	fatal(t, err)
	if renewed.ServerMark == "unknown" {
		t.Error("a plain role cannot name the server")
	}
	exec(t, admin, `REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC`)
	if mark, err := p.ServerMark(ctx); err != nil || mark != "unknown" {
		t.Errorf("mark that is refused: %q, %v", mark, err)
	}
	renewed, err = p.Renew(ctx, meta.Owner{BrokerID: 1, Incarnation: reg.Incarnation}, time.Minute, -1)
	fatal(t, err)
	if renewed.ServerMark != "unknown" {
		t.Errorf("mark that is refused: %q", renewed.ServerMark)
	}
	for _, object := range query(t, admin, sqlOurObjects) {
		if strings.HasPrefix(object, "public") {
			t.Errorf("created in public: %s", object)
		}
	}
	p.Close()
}

// TestPublicSchema pins the views and functions that users build on: names, types, order and comments.
func TestPublicSchema(t *testing.T) {
	url := pgtest.URL(t)
	fatal(t, openAt(t, url).Migrate(context.Background()))
	lines := query(t, url, `
		SELECT format('view %s -- %s', c.relname, coalesce(obj_description(c.oid, 'pg_class'), 'NO COMMENT')) AS line, c.relname::text, 0
		FROM pg_class c WHERE relnamespace = 'pgbroker'::regnamespace
		UNION ALL
		SELECT format('  %s %s -- %s', a.attname, format_type(a.atttypid, a.atttypmod), coalesce(col_description(c.oid, a.attnum), 'NO COMMENT')), c.relname, a.attnum
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE relnamespace = 'pgbroker'::regnamespace AND attnum > 0
		UNION ALL
		SELECT format('function %s(%s) %s -- %s', proname, pg_get_function_identity_arguments(oid), pg_get_function_result(oid), coalesce(obj_description(oid, 'pg_proc'), 'NO COMMENT')),
		  '~' || proname, 0 FROM pg_proc WHERE pronamespace = 'pgbroker'::regnamespace
		ORDER BY 2, 3`)
	var b strings.Builder
	for _, l := range lines {
		line, _, _ := strings.Cut(l, " | ")
		fmt.Fprintln(&b, line)
	}
	const golden = "testdata/public_schema.golden"
	if *update {
		fatal(t, os.WriteFile(golden, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	fatal(t, err)
	if b.String() != string(want) {
		t.Errorf("the public schema has changed; a column may only be added. Got:\n%s", b.String())
	}
	if strings.Contains(b.String(), "NO COMMENT") {
		t.Error("a view, column or function has no comment")
	}
}

func TestPublicViews(t *testing.T) {
	url := pgtest.URL(t)
	p, ctx := openAt(t, url), context.Background()
	fatal(t, p.Migrate(ctx))
	_, err := p.Bootstrap(ctx)
	fatal(t, err)
	reg, err := p.Register(ctx, meta.Registration{BrokerID: 1, Lease: time.Minute, Software: "x", Endpoints: []meta.Endpoint{{Name: "PLAINTEXT", Host: "h", Port: 9092}}})
	fatal(t, err)
	o := meta.Owner{BrokerID: 1, Incarnation: reg.Incarnation}
	_, _, err = p.CreateTopics(ctx, o, []meta.NewTopic{{ID: meta.UUID{15: 1}, Name: "orders", Configs: map[string]string{"retention.ms": "5"}, Replicas: [][]int32{{1}, {1}}},
		{ID: meta.UUID{15: 2}, Name: "__internal", Replicas: [][]int32{{1}}}})
	fatal(t, err)
	fatal(t, p.SaveLogOffsets(ctx, []meta.LogOffset{{TopicID: meta.UUID{15: 1}, Partition: 0, Start: 5, Stable: 90, High: 100, End: 110, SizeBytes: 7}}))
	shards, err := p.TakeShards(ctx, o, nil)
	fatal(t, err)
	now := time.Now()
	fatal(t, p.CommitShards(ctx, 1, []meta.ShardChange{{Shard: 0, Term: shards[0].Term, Seq: 0,
		Groups:  []meta.GroupRow{{Group: "g", Kind: "classic", ProtocolType: "consumer", Protocol: "range", Generation: 2, Leader: "m", Version: 1}},
		Members: []meta.MemberRow{{Group: "g", MemberID: "m", ClientID: "c", ClientHost: "/h", Version: 1}},
		Offsets: []meta.OffsetRow{{Group: "g", TopicID: meta.UUID{15: 1}, Partition: 0, Offset: 60, LeaderEpoch: 1, CommittedAt: now, Version: 1},
			{Group: "old", TopicID: meta.UUID{15: 1}, Partition: 0, Offset: 2, LeaderEpoch: -1, CommittedAt: now, Version: 1},
			{Group: "g", TopicID: meta.UUID{15: 1}, Partition: 1, Offset: 3, LeaderEpoch: -1, CommittedAt: now, Version: 1}}}}))
	exec(t, url, `INSERT INTO pgbroker_internal.transactions (transactional_id, shard, producer_id, epoch, timeout_ms, outcome, partitions, version) VALUES ('t', 0, 9, 1, 60000, 2, '[[1,2,3]]', 1)`)
	for sql, want := range map[string]string{
		`SELECT name, partitions, replication_factor, configs->>'retention.ms', size_bytes FROM pgbroker.topics WHERE name = 'orders'`:                                                                          "orders | 2 | 1 | 5 | 7",
		`SELECT topic, partition, leader, leader_epoch, start_offset, stable_offset, high_watermark, end_offset FROM pgbroker.partitions WHERE end_offset = 110`:                                                "orders | 0 | 1 | 1 | 5 | 90 | 100 | 110",
		`SELECT broker_id, state, lease_running, broker_epoch, endpoints->0->>'host' FROM pgbroker.brokers`:                                                                                                     "1 | live | true | 1 | h",
		`SELECT group_id, kind, state, members, generation, protocol, offset_owner FROM pgbroker.groups`:                                                                                                        "g | classic | Active | 1 | 2 | range | broker",
		`SELECT group_id, member_id, client_id FROM pgbroker.group_members`:                                                                                                                                     "g | m | c",
		`SELECT topic, committed_offset, leader_epoch FROM pgbroker.offsets WHERE group_id = 'g' AND partition = 0`:                                                                                             "orders | 60 | 1",
		`SELECT lag FROM pgbroker.consumer_lag WHERE group_id = 'g' AND partition = 0`:                                                                                                                          "40",
		`SELECT lag FROM pgbroker.consumer_lag WHERE group_id = 'old'`:                                                                                                                                          "95",
		`SELECT lag FROM pgbroker.consumer_lag WHERE group_id = 'g' AND partition = 1`:                                                                                                                          "<nil>",
		`SELECT transactional_id, producer_epoch, last_outcome, last_partitions, pending_offsets FROM pgbroker.transactions`:                                                                                    "t | 1 | abort | 1 | 0",
		`SELECT pgbroker.api_version(), pgbroker.may_write('postgres', 'orders'), pgbroker.may_write('nobody', 'orders'), pgbroker.may_write('postgres', 'none'), pgbroker.may_write('postgres', '__internal')`: "1 | true | false | false | false",
	} {
		if got := query(t, url, sql); len(got) != 1 || got[0] != want {
			t.Errorf("%s\n got %v\nwant %s", sql, got, want)
		}
	}
}
