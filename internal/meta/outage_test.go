package meta_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/internal/meta"
)

// TestOutages stops, kills and pauses Postgres: every call ends by its deadline with an honest error, and service is
// back as soon as Postgres is.
func TestOutages(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	p, ctx := openAt(t, server.URL("postgres")), context.Background()
	o, shards := owned(t, p)
	seq := int64(0)
	commit := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return p.CommitShards(ctx, 1, []meta.ShardChange{offsetChange(shards[0], seq)})
	}
	fatal(t, commit(time.Second*5))
	seq++
	for _, outage := range []struct {
		name       string
		begin, end func() error
	}{
		{"killed", server.Kill, func() error { return server.Restart(ctx) }},
		{"immediate stop", server.Immediate, func() error { return server.Restart(ctx) }},
		{"paused", server.Pause, server.Resume},
	} {
		fatal(t, outage.begin())
		unknown := false
		for range 4 {
			const limit = 300 * time.Millisecond
			begin := time.Now()
			err := commit(limit)
			switch {
			case errors.Is(err, meta.ErrUnknownOutcome):
				unknown = true
			case !errors.Is(err, meta.ErrUnavailable):
				t.Errorf("%s: %v", outage.name, err)
			}
			if d := time.Since(begin); d > limit+2*time.Second {
				t.Errorf("%s: a call took %s", outage.name, d)
			}
		}
		fatal(t, outage.end())
		back := time.Now()
		fatal(t, p.WaitReady(ctx, 20*time.Second, func(string) {}))
		if d := time.Since(back); d > 5*time.Second { // a second on a machine that is not busy
			t.Errorf("%s: back only after %s", outage.name, d)
		}
		if unknown {
			got, err := p.ResolveShards(ctx, 1, meta.Unknown(offsetChange(shards[0], seq)))
			fatal(t, err)
			seq = got[0].Seq
		}
		fatal(t, commit(5*time.Second))
		seq++
		_, err := p.Renew(ctx, o, time.Hour, -1)
		fatal(t, err)
	}
}

// certificate makes a self-signed one for 127.0.0.1.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "pgtest"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	fatal(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	fatal(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	admin := server.URL("postgres")
	cert, key := certificate(t)
	other, _ := certificate(t)
	dir := query(t, admin, `SELECT current_setting('data_directory')`)[0]
	for name, text := range map[string]string{"server.crt": cert, "server.key": key} { // the server must own them
		exec(t, admin, fmt.Sprintf(`COPY (SELECT unnest(string_to_array('%s', E'\n'))) TO PROGRAM 'umask 077; cat > "%s/%s"'`, strings.TrimSpace(text), dir, name))
	}
	exec(t, admin, `ALTER SYSTEM SET ssl = on`, `SELECT pg_reload_conf()`)
	u, err := url.Parse(admin)
	fatal(t, err)
	u.Host = net.JoinHostPort("127.0.0.1", fmt.Sprint(server.Port()))
	with := func(ca string) string {
		path := filepath.Join(t.TempDir(), "ca.pem")
		fatal(t, os.WriteFile(path, []byte(ca), 0o600))
		u.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {path}}.Encode()
		return u.String()
	}
	p := openAt(t, with(cert))
	fatal(t, p.WaitReady(context.Background(), 10*time.Second, func(string) {}))
	if got := query(t, with(cert), `SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`); got[0] != "true" {
		t.Errorf("the session is not encrypted: %v", got)
	}
	err = openAt(t, with(other)).WaitReady(context.Background(), 300*time.Millisecond, func(string) {})
	is(t, err, meta.ErrUnavailable)
	if !strings.Contains(err.Error(), "check sslmode and sslrootcert") {
		t.Errorf("error is %v", err)
	}
}
