package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// setting is one key of -X.
type setting struct {
	key, env, help string
}

func clientSettings() []setting {
	return []setting{
		{"client.id", "", "name that brokers log for this client (default pgbroker)"},
		{"tls.enabled", "", "true to connect with TLS; implied by the other tls settings"},
		{"tls.ca", "PGBROKER_TLS_CA", "file with the certificates that may sign the broker's"},
		{"tls.cert", "PGBROKER_TLS_CERT", "file with the client's certificate"},
		{"tls.key", "PGBROKER_TLS_KEY", "file with the client's key"},
		{"tls.server_name", "", "name that the broker's certificate must have"},
		{"tls.insecure_skip_verify", "", "true to accept any certificate"},
		{"sasl.mechanism", "PGBROKER_SASL_MECHANISM", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (default when user is set: SCRAM-SHA-256)"},
		{"user", "PGBROKER_SASL_USER", "SASL user"},
		{"pass", "", "SASL password; others on this machine can see it, prefer pass_file"},
		{"pass_file", "PGBROKER_SASL_PASSWORD_FILE", "file whose first line is the SASL password"},
	}
}

func printSettings(w io.Writer) {
	t := newTable("KEY", "ENVIRONMENT", "MEANING")
	for _, s := range clientSettings() {
		t.row(s.key, s.env, s.help)
	}
	t.write(w)
}

// readSettings merges the environment and -X, the later winning.
func (g *globals) readSettings() (map[string]string, error) {
	known := clientSettings()
	values := map[string]string{}
	for _, s := range known {
		if v := os.Getenv(s.env); s.env != "" && v != "" {
			values[s.key] = v
		}
	}
	for _, kv := range g.settings {
		key, value, _ := strings.Cut(kv, "=")
		if !slices.ContainsFunc(known, func(s setting) bool { return s.key == key }) {
			var keys []string
			for _, s := range known {
				keys = append(keys, s.key)
			}
			hint := ""
			if near := nearest(key, keys); near != "" {
				hint = fmt.Sprintf(" (did you mean %q?)", near)
			}
			return nil, usagef("-X %s: unknown setting%s; -X list shows all keys", key, hint)
		}
		values[key] = value
	}
	return values, nil
}

// clientOpts turns the flags and settings into the options of the Kafka client.
func (g *globals) clientOpts(seeds []string) ([]kgo.Opt, error) {
	values, err := g.readSettings()
	if err != nil {
		return nil, err
	}
	id := values["client.id"]
	if id == "" {
		id = "pgbroker"
	}
	// A third of the patience for one dial leaves time to try another broker.
	dialTimeout := min(max(g.timeout/3, time.Second), 10*time.Second)
	dialer := &net.Dialer{Timeout: dialTimeout}
	opts := []kgo.Opt{
		kgo.SeedBrokers(seeds...),
		kgo.ClientID(id),
		kgo.SoftwareNameAndVersion("pgbroker", softwareVersion()),
		kgo.Dialer(dialer.DialContext),
	}
	tlsConfig, err := tlsFromSettings(values)
	if err != nil {
		return nil, err
	}
	if tlsConfig != nil {
		opts = append(opts, kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			cfg := tlsConfig.Clone()
			if host, _, err := net.SplitHostPort(addr); err == nil && cfg.ServerName == "" {
				cfg.ServerName = host
			}
			return (&tls.Dialer{NetDialer: dialer, Config: cfg}).DialContext(ctx, network, addr)
		}))
	}
	mechanism, err := saslFromSettings(values)
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

// tlsFromSettings returns nil when no setting asks for TLS.
func tlsFromSettings(values map[string]string) (*tls.Config, error) {
	enabled, err := boolSetting(values, "tls.enabled")
	if err != nil {
		return nil, err
	}
	skip, err := boolSetting(values, "tls.insecure_skip_verify")
	if err != nil {
		return nil, err
	}
	ca, cert, key, name := values["tls.ca"], values["tls.cert"], values["tls.key"], values["tls.server_name"]
	if !enabled && !skip && ca == "" && cert == "" && key == "" && name == "" {
		return nil, nil
	}
	cfg := &tls.Config{ServerName: name, InsecureSkipVerify: skip, MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, usagef("-X tls.ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("-X tls.ca: %s has no PEM certificate", ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, usagef("-X tls.cert and tls.key go together; one of them is missing")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, usagef("-X tls.cert: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

func boolSetting(values map[string]string, key string) (bool, error) {
	v, ok := values[key]
	if !ok {
		return false, nil
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, usagef("-X %s=%s: not true or false", key, v)
	}
	return b, nil
}

// saslFromSettings returns nil when no user is given.
func saslFromSettings(values map[string]string) (sasl.Mechanism, error) {
	user, pass := values["user"], values["pass"]
	if file := values["pass_file"]; file != "" && pass == "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, usagef("-X pass_file: %w", err)
		}
		pass, _, _ = strings.Cut(string(text), "\n")
		pass = strings.TrimSuffix(pass, "\r")
	}
	name := strings.ToUpper(values["sasl.mechanism"])
	if user == "" {
		if name != "" || pass != "" {
			return nil, usagef("SASL needs a user; give -X user=NAME")
		}
		return nil, nil
	}
	if pass == "" {
		return nil, usagef("SASL needs a password for %q; give -X pass_file=FILE", user)
	}
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: pass}.AsMechanism(), nil
	case "", "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: pass}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: pass}.AsSha512Mechanism(), nil
	}
	return nil, usagef("-X sasl.mechanism=%s: not supported; one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512", name)
}
