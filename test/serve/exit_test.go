package serve

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/test/harness"
)

// refused runs serve, which must end with the code and exactly one error line that holds all texts; nothing is printed on
// standard output, and none of the words of a password anywhere.
func refused(t *testing.T, code int, env, args []string, texts ...string) result {
	t.Helper()
	r := run(t, env, args...)
	if r.code != code || r.out != "" {
		t.Errorf("exit code %d, want %d; stdout %q", r.code, code, r.out)
	}
	lines := r.errorLines()
	if len(lines) != 1 {
		t.Fatalf("want one error line, got:\n%s", r.errs)
	}
	for _, text := range texts {
		if !strings.Contains(lines[0], text) {
			t.Errorf("want %q in: %s", text, lines[0])
		}
	}
	if strings.Contains(r.errs, secret) {
		t.Errorf("a password is shown:\n%s", r.errs)
	}
	return r
}

const secret = "s3cr3t-Pa55"

// TestBadSettings: what is wrong with the settings alone is said at once, before anything is touched.
func TestBadSettings(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "log")
	unused := "postgres://u:" + secret + "@127.0.0.1:1/none"
	base := func(set ...string) []string { return serveArgs(unused, dir, set...) }
	file := filepath.Join(t.TempDir(), "server.properties")
	if err := os.WriteFile(file, []byte("log.dirs="+dir+"\nlog.segment.bites=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		env   []string
		args  []string
		texts []string
	}{
		"unknown key":               {nil, base("log.segment.bites=1"), []string{"--set log.segment.bites=1", "unknown property", "did you mean log.segment.bytes?"}},
		"unknown key in a file":     {nil, []string{"serve", "-c", file, "--set", "postgres.url=" + unused}, []string{file + ":2", "log.segment.bites", "unknown property"}},
		"missing file":              {nil, []string{"serve", "-c", file + "x"}, []string{file + "x", "no such file"}},
		"unknown PGBROKER_":         {[]string{"PGBROKER_LOG_DIRZ=/x"}, base(), []string{"PGBROKER_LOG_DIRZ", "unknown property"}},
		"bad value":                 {nil, base("log.segment.bytes=many"), []string{"log.segment.bytes=many", "whole number"}},
		"bad value of KAFKA_":       {[]string{"KAFKA_LOG_SEGMENT_BYTES=5"}, base(), []string{"KAFKA_LOG_SEGMENT_BYTES=5", "1048576"}},
		"bad choice":                {nil, base("durability=maybe"), []string{"durability=maybe", "strict", "relaxed"}},
		"no key":                    {nil, base("durability"), []string{"--set durability", "key=value"}},
		"unroutable listener":       {nil, base("listeners=PLAINTEXT://0.0.0.0:9092"), []string{"PLAINTEXT://0.0.0.0:9092", "set advertised.listeners="}},
		"unroutable advertised":     {nil, base("advertised.listeners=PLAINTEXT://[::]:9092"), []string{"advertised.listeners=PLAINTEXT://[::]:9092", "clients cannot connect"}},
		"advertised without one":    {nil, base("advertised.listeners=OUTSIDE://h:1"), []string{"no listener OUTSIDE"}},
		"SSL":                       {nil, base("listeners=SSL://127.0.0.1:0"), []string{"SSL", "not available yet", "only PLAINTEXT"}},
		"SASL_PLAINTEXT":            {nil, base("listeners=SASL_PLAINTEXT://127.0.0.1:0"), []string{"SASL_PLAINTEXT", "not available yet"}},
		"SASL_SSL by map":           {nil, base("listeners=OUT://127.0.0.1:0", "listener.security.protocol.map=OUT:SASL_SSL"), []string{"OUT", "SASL_SSL", "not available yet"}},
		"listener without a map":    {nil, base("listeners=OUT://127.0.0.1:0"), []string{"OUT", "listener.security.protocol.map"}},
		"no log.dirs":               {nil, base("log.dirs="), []string{"log.dirs is not set", "KAFKA_LOG_DIRS"}},
		"two log.dirs":              {nil, base("log.dirs=/a,/b"), []string{"log.dirs=/a,/b", "exactly one"}},
		"no postgres.url":           {nil, []string{"serve", "--set", "log.dirs=" + dir}, []string{"postgres.url is not set", "PGBROKER_POSTGRES_URL", "dev"}},
		"malformed postgres.url":    {nil, serveArgs("postgres://u:"+secret+"@h:port/x", dir), []string{"postgres.url", "expected is postgres://"}},
		"ids that differ":           {nil, base("node.id=1", "broker.id=2"), []string{"node.id=1", "broker.id=2"}},
		"unknown flag":              {nil, []string{"serve", "--listen"}, []string{"--listen", "serve --help"}},
		"argument":                  {nil, []string{"serve", "now"}, []string{`"now"`}},
		"migrate down without --to": {nil, []string{"migrate", "down", "--set", "postgres.url=" + unused}, []string{"--to"}},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, 2, tc.env, tc.args, tc.texts...)
		})
	}
}

// TestForeignVariableOnlyWarns: Kubernetes puts variables like KAFKA_PORT into every container.
func TestForeignVariableOnlyWarns(t *testing.T) {
	t.Parallel()
	n := serveIn(t, database(t), filepath.Join(t.TempDir(), "log"), []string{"KAFKA_PORT=tcp://10.0.0.1:9092", "KAFKA_NUM_PARTITIONS=3", "PGBROKER_NUM_PARTITIONS="})
	if log := n.errs.String(); strings.Count(log, "KAFKA_PORT") != 1 || !strings.Contains(log, `"level":"WARN"`) {
		t.Errorf("want one warning about KAFKA_PORT:\n%s", log)
	}
}

// TestBadDirectories: a log directory that cannot be used, or must not be.
func TestBadDirectories(t *testing.T) {
	t.Parallel()
	mine, other := database(t), database(t)
	dir := filepath.Join(t.TempDir(), "log")
	n := serveIn(t, mine, dir, nil)

	t.Run("in use", func(t *testing.T) {
		refused(t, 1, nil, serveArgs(other, dir), dir, "in use by another process", "stop it")
	})
	t.Run("port taken", func(t *testing.T) {
		refused(t, 1, nil, serveArgs(other, filepath.Join(t.TempDir(), "log"), "listeners=PLAINTEXT://"+n.bootstrap), n.bootstrap, "stop it, or set listeners")
	})
	t.Run("http port taken", func(t *testing.T) {
		address := strings.TrimPrefix(n.httpURL, "http://")
		refused(t, 1, nil, serveArgs(other, filepath.Join(t.TempDir(), "log"), "http.listen="+address), address, "stop it, or set http.listen")
	})
	t.Run("a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, 1, nil, serveArgs(other, file), file, "give a directory")
		refused(t, 1, nil, serveArgs(other, file+"/below"), file, "give a directory")
	})
	t.Run("missing is made", func(t *testing.T) {
		below := filepath.Join(t.TempDir(), "a", "b", "log")
		serveIn(t, database(t), below, nil)
		if _, err := os.Stat(filepath.Join(below, "meta.properties")); err != nil {
			t.Error(err)
		}
	})
	t.Run("another node", func(t *testing.T) {
		n.terminate()
		refused(t, 1, nil, serveArgs(mine, dir, "node.id=9"), dir, "node.id", "set node.id=1")
	})
	t.Run("another cluster", func(t *testing.T) {
		refused(t, 1, nil, serveArgs(other, dir), dir, "belongs to cluster", "postgres.url")
		serveIn(t, mine, dir, nil) // the refusals have left it as it was
	})
}

// TestUnwritableDirectory runs serve as another user where this one is root.
func TestUnwritableDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	if os.Getuid() != 0 {
		refused(t, 1, nil, serveArgs("postgres://127.0.0.1:1/x", dir+"/log"), dir, "permission denied", "may write to")
		return
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // for the other user to pass
		t.Fatal(err)
	}
	harness.Need(t, "setpriv")
	args := append([]string{"--reuid=65534", "--regid=65534", "--clear-groups", reachable(t)}, serveArgs("postgres://127.0.0.1:1/x", dir+"/log")...)
	r := runCommand(t, nil, "", "setpriv", args...)
	if lines := r.errorLines(); r.code != 1 || len(lines) != 1 || !strings.Contains(lines[0], "permission denied; give a directory") {
		t.Errorf("exit code %d\n%s", r.code, r.errs)
	}
}

// TestUnreachablePostgres: one line each five seconds while it waits, then exit code 3 with what to do.
func TestUnreachablePostgres(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "log")
	port := harness.FreePort(t)
	args := append(serveArgs(fmt.Sprintf("postgres://u:%s@127.0.0.1:%d/x", secret, port), dir), "--wait-postgres", "6s")
	r := refused(t, 3, nil, args, fmt.Sprintf("127.0.0.1:%d", port), "not ready after 6s", "connection refused", "check host and port")
	if strings.Count(r.errs, "waiting for Postgres") != 1 || r.took.Seconds() < 5.9 || r.took.Seconds() > 9 {
		t.Errorf("want one line after 5 s and the end after 6 s, got after %s:\n%s", r.took, r.errs)
	}
}

// TestRefusedByPostgres: reachable servers that will not do.
func TestRefusedByPostgres(t *testing.T) {
	t.Parallel()
	good, err := url.Parse(database(t))
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(u *url.URL)) []string {
		u := *good
		change(&u)
		return append(serveArgs(u.String(), filepath.Join(t.TempDir(), "log")), "--wait-postgres", "1s")
	}
	t.Run("wrong password", func(t *testing.T) {
		args := with(func(u *url.URL) { u.User = url.UserPassword("postgres", secret) })
		refused(t, 3, nil, args, "password authentication failed", "28P01", "PGPASSFILE")
	})
	t.Run("no database", func(t *testing.T) {
		refused(t, 3, nil, with(func(u *url.URL) { u.Path = "/nowhere" }), "nowhere", "3D000", "create the database")
	})
	t.Run("no name", func(t *testing.T) {
		args := with(func(u *url.URL) { u.Host = "db.invalid:5432"; u.User = url.UserPassword("u", secret) })
		refused(t, 3, nil, args, "db.invalid", "check the host name")
	})
	t.Run("too old", func(t *testing.T) {
		args := with(func(u *url.URL) { u.Host = oldServer(t); u.User = url.UserPassword("u", secret) })
		r := refused(t, 1, nil, args, "version 13.11", "at least 14 is needed")
		if r.took.Seconds() > 10 {
			t.Errorf("it took %s to refuse what no waiting can change", r.took)
		}
	})
}

// oldServer is the address of something that greets like a Postgres 13.
func oldServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go greetAs(c, "13.11")
		}
	}()
	return l.Addr().String()
}

// greetAs speaks the start of a session, and answers every query with "off": pgx asks old servers whether they are read
// only before anything else.
func greetAs(c net.Conn, version string) {
	defer func() { _ = c.Close() }()
	message := func(kind byte, body string) string {
		return string(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4))) + body
	}
	idle := message('Z', "I")
	column := "transaction_read_only\x00" + "\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x19\xff\xff\xff\xff\xff\xff\x00\x00"
	off := message('T', "\x00\x01"+column) + message('D', "\x00\x01\x00\x00\x00\x03off") + message('C', "SHOW\x00") + idle
	r := bufio.NewReader(c)
	skip := func() bool { // the rest of a message
		var size uint32
		if binary.Read(r, binary.BigEndian, &size) != nil || size < 4 || size > 10_000 {
			return false
		}
		_, err := r.Discard(int(size) - 4)
		return err == nil
	}
	if !skip() { // the startup message
		return
	}
	_, _ = io.WriteString(c, message('R', "\x00\x00\x00\x00")+message('S', "server_version\x00"+version+"\x00")+
		message('S', "server_encoding\x00UTF8\x00")+message('S', "client_encoding\x00UTF8\x00")+
		message('K', "\x00\x00\x00\x01\x00\x00\x00\x02")+idle)
	for {
		kind, err := r.ReadByte()
		if err != nil || !skip() {
			return
		}
		if kind == 'Q' {
			_, _ = io.WriteString(c, off)
		}
	}
}

// TestCheckAndPrintConfig: what a start would find, without a start.
func TestCheckAndPrintConfig(t *testing.T) {
	t.Parallel()
	url, dir := database(t), filepath.Join(t.TempDir(), "log")
	out := run(t, nil, append(serveArgs(url, dir), "--check")...).must(t)
	if !regexp.MustCompile(`^ok  listener PLAINTEXT 127\.0\.0\.1:0.*\nok  log\.dirs .*\nok  postgres .*, schema version 0 of [1-9]\d*\n$`).MatchString(out) {
		t.Errorf("--check says:\n%s", out)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("--check has made the log directory: %v", err)
	}
	checked := run(t, nil, append(serveArgs("postgres://u:"+secret+"@127.0.0.1:1/x", dir), "--wait-postgres", "1s", "--check")...)
	if checked.code != 3 || len(checked.errorLines()) != 1 || strings.Contains(checked.errs+checked.out, secret) {
		t.Errorf("--check without Postgres: exit code %d\n%s%s", checked.code, checked.out, checked.errs)
	}

	out = run(t, []string{"KAFKA_LOG_RETENTION_HOURS=7"}, append(serveArgs("postgres://u:"+secret+"@127.0.0.1:1/x", dir), "--print-config")...).must(t)
	for _, want := range []string{"log.retention.hours=7\n", "log.dirs=" + dir + "\n", "postgres.url="} {
		if !strings.Contains(out, want) {
			t.Errorf("--print-config lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, secret) || strings.Contains(out, "log.segment.bytes") {
		t.Errorf("--print-config shows a password, or what was not set:\n%s", out)
	}
	if all := run(t, nil, append(serveArgs(url, dir), "--print-config=all")...).must(t); !strings.Contains(all, "log.segment.bytes=1073741824\n") {
		t.Errorf("--print-config=all lacks a default:\n%s", all)
	}
}

// TestMigrate: up and down by hand, and nothing is lost without --yes.
func TestMigrate(t *testing.T) {
	t.Parallel()
	url := database(t)
	migrate := func(args ...string) result {
		return run(t, nil, append(append([]string{"migrate"}, args...), "--set", "postgres.url="+url)...)
	}
	versions := func() string { return strings.Join(strings.Fields(migrate("status").must(t))[3:], " ") }
	const objects = `SELECT count(*)::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
		WHERE nspname IN ('pgbroker', 'pgbroker_internal') AND relkind IN ('r', 'v', 'p') AND relname <> 'schema_migrations'`
	if v := versions(); !strings.HasPrefix(v, "0 ") || !strings.HasSuffix(v, "false") {
		t.Errorf("status of an empty database: %s", v)
	}
	if out := migrate("up", "--dry-run").must(t); !strings.HasPrefix(out, "would go from version 0 to ") || query(t, url, objects)[0] != "0" {
		t.Errorf("up --dry-run: %s", out)
	}
	migrate("up").must(t)
	migrate("up").must(t) // again changes nothing
	if v := strings.Fields(versions()); v[0] != v[1] || v[2] != "false" {
		t.Errorf("status after up: %v", v)
	}
	preview := migrate("down", "--to", "0")
	if preview.code != 2 || len(preview.errorLines()) != 1 || !strings.Contains(preview.errs, "--yes") || query(t, url, objects)[0] == "0" {
		t.Errorf("down without --yes: exit code %d\n%s%s", preview.code, preview.out, preview.errs)
	}
	migrate("down", "--to", "0", "--yes").must(t)
	if query(t, url, objects)[0] != "0" || !strings.HasPrefix(versions(), "0 ") {
		t.Errorf("after down: %s", versions())
	}
	n := serve(t, url) // installs by itself
	produce(t, n.client(kgo.AllowAutoTopicCreation()), "t", "x")
}
