package serve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/internal/embedpg"
	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

// use produces, consumes in a group and commits: all that needs rights on the tables.
func use(t *testing.T, n *node) {
	t.Helper()
	c := n.client(kgo.AllowAutoTopicCreation())
	produce(t, c, "used", "hello")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	g := n.client(kgo.ConsumeTopics("used"), kgo.ConsumerGroup("users"), kgo.DisableAutoCommit())
	records := g.PollRecords(ctx, 1).Records()
	if len(records) != 1 || string(records[0].Value) != "hello" {
		t.Fatalf("consumed %v", records)
	}
	if err := g.CommitRecords(ctx, records...); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

// TestLeastPrivilege: a role with LOGIN and CREATE on its database installs and runs everything, and leaves the schema
// public alone.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	admin := database(t)
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	db, role := strings.TrimPrefix(u.Path, "/"), "app_"+strings.TrimPrefix(u.Path, "/")
	execute(t, admin,
		fmt.Sprintf("CREATE ROLE %s LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD '%s'", role, secret),
		fmt.Sprintf("REVOKE ALL ON DATABASE %s FROM PUBLIC", db),
		fmt.Sprintf("GRANT CONNECT, CREATE ON DATABASE %s TO %s", db, role),
		"REVOKE ALL ON SCHEMA public FROM PUBLIC")
	t.Cleanup(func() { execute(t, admin, "DROP OWNED BY "+role+" CASCADE", "DROP ROLE "+role) })
	u.User = url.UserPassword(role, secret)
	n := serve(t, u.String())
	use(t, n)
	if log := n.ready + n.errs.String(); strings.Contains(log, secret) {
		t.Errorf("the password is in the log:\n%s", log)
	}
	n.terminate()
	const inPublic = `SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace)
		+ (SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace)
		+ (SELECT count(*) FROM pg_type WHERE typnamespace = 'public'::regnamespace)`
	if left := query(t, admin, inPublic)[0]; left != "0" {
		t.Errorf("%s objects in the schema public", left)
	}
	if owners := queryRows(t, admin, `SELECT DISTINCT nspname::text, rolname::text FROM pg_namespace JOIN pg_roles r ON r.oid = nspowner
		WHERE nspname LIKE 'pgbroker%' ORDER BY 1`); fmt.Sprint(owners) != fmt.Sprintf("[[pgbroker %[1]s] [pgbroker_internal %[1]s]]", role) {
		t.Errorf("schemas and owners: %v", owners)
	}
}

// TestWaysToPostgres: a Unix socket, a password file, TLS, several hosts.
func TestWaysToPostgres(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	home := filepath.Dir(server.LogFile())
	certificate := enableTLS(t, server, filepath.Join(home, "pgdata"))
	for _, db := range []string{"socket", "passfile", "tls", "hosts"} {
		if err := server.EnsureDatabase(context.Background(), db); err != nil {
			t.Fatal(err)
		}
	}
	// at is the URL of a database with another query, and without the password if asked.
	at := func(db, query string, password bool) string {
		u, err := url.Parse(server.URL(db))
		if err != nil {
			t.Fatal(err)
		}
		u.RawQuery = query
		if !password {
			u.User = url.User(u.User.Username())
		}
		return u.String()
	}

	t.Run("unix socket", func(t *testing.T) {
		n := serve(t, fmt.Sprintf("postgres:///socket?host=%s&port=%d&user=postgres", filepath.Join(home, "s"), server.Port()))
		use(t, n)
	})
	t.Run("password file", func(t *testing.T) {
		u, err := url.Parse(server.URL("passfile"))
		if err != nil {
			t.Fatal(err)
		}
		password, _ := u.User.Password()
		file := filepath.Join(t.TempDir(), "pgpass")
		if err := os.WriteFile(file, fmt.Appendf(nil, "127.0.0.1:%d:*:postgres:%s\n", server.Port(), password), 0o600); err != nil {
			t.Fatal(err)
		}
		use(t, serveIn(t, at("passfile", "sslmode=disable", false), filepath.Join(t.TempDir(), "log"), []string{"PGPASSFILE=" + file}))
	})
	t.Run("TLS", func(t *testing.T) {
		n := serve(t, at("tls", "sslmode=verify-full&sslrootcert="+certificate, true))
		use(t, n)
		sessions := queryRows(t, server.URL("tls"), `SELECT DISTINCT s.ssl::text, s.version::text FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
			WHERE a.application_name = 'pgbroker'`)
		if len(sessions) != 1 || sessions[0][0] != "true" {
			t.Errorf("sessions of the broker: %v", sessions)
		}
	})
	t.Run("TLS with another certificate authority", func(t *testing.T) {
		other, _ := selfSigned(t)
		file := filepath.Join(t.TempDir(), "other.pem")
		if err := os.WriteFile(file, other, 0o600); err != nil {
			t.Fatal(err)
		}
		args := serveArgs(at("tls", "sslmode=verify-full&sslrootcert="+file, true), filepath.Join(t.TempDir(), "log"))
		refused(t, 3, nil, append(args, "--wait-postgres", "1s"), "x509", "check sslmode and sslrootcert")
	})
	t.Run("several hosts", func(t *testing.T) {
		u, err := url.Parse(at("hosts", "sslmode=disable&target_session_attrs=read-write", true))
		if err != nil {
			t.Fatal(err)
		}
		u.Host = fmt.Sprintf("127.0.0.1:%d,%s", harness.FreePort(t), u.Host)
		n := serve(t, u.String())
		use(t, n)
		if n.took > 5*time.Second {
			t.Errorf("a dead first host delayed the start to %s", n.took)
		}
	})
}

// enableTLS gives the server a certificate of its own and restarts it; it returns the file of the certificate.
func enableTLS(t *testing.T, server *embedpg.Server, data string) string {
	t.Helper()
	certificate, key := selfSigned(t)
	info, err := os.Stat(data)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		path := filepath.Join(data, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	conf, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conf.WriteString("ssl = on\nssl_cert_file = 'tls.crt'\nssl_key_file = 'tls.key'\n")
	if closed := conf.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = server.Restart(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// selfSigned makes a certificate for 127.0.0.1 that is its own authority, and its key, both in PEM.
func selfSigned(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}
