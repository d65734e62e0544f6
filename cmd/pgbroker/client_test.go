package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

func TestExitCode(t *testing.T) {
	live := context.Background()
	stopped, cancel := context.WithCancel(live)
	cancel()
	for _, tc := range []struct {
		ctx  context.Context
		err  error
		want int
	}{
		{live, nil, exitOK},
		{live, errors.New("x"), exitFailed},
		{live, usagef("x"), exitUsage},
		{live, fmt.Errorf("y: %w", usagef("x")), exitUsage},
		{live, unreachablef("x"), exitUnreachable},
		{live, fmt.Errorf("y: %w", &net.OpError{Op: "dial", Err: io.EOF}), exitUnreachable},
		{live, context.DeadlineExceeded, exitUnreachable},
		{live, kafkaError("x", kerr.GroupAuthorizationFailed, ""), exitUnauthorized},
		{live, kafkaError("x", kerr.UnknownTopicOrPartition, ""), exitFailed},
		{live, context.Canceled, exitFailed},
		{stopped, context.Canceled, exitInterrupted},
		{stopped, errors.New("x"), exitFailed},
		{live, &exitError{code: exitWarning}, exitWarning},
	} {
		if got := exitCode(tc.ctx, tc.err); got != tc.want {
			t.Errorf("exit code of %v is %d, want %d", tc.err, got, tc.want)
		}
	}
	var mixed failures
	mixed.add(kafkaError("a", kerr.TopicAuthorizationFailed, ""))
	mixed.add(nil)
	if got := exitCode(live, mixed.err(live)); got != exitUnauthorized {
		t.Errorf("exit code of refused items is %d", got)
	}
	mixed.add(kafkaError("b", kerr.TopicAlreadyExists, ""))
	if got := exitCode(live, mixed.err(live)); got != exitFailed {
		t.Errorf("exit code of items that failed differently is %d", got)
	}
}

func TestParseRange(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	at := func(t time.Time) position { return position{kind: atTime, at: t} }
	day := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	to := func(p position) *position { return &p }
	for spec, want := range map[string]offsetRange{
		"start":                    {from: position{kind: atStart}},
		"end":                      {from: position{kind: atEnd}},
		"0":                        {from: position{kind: exact}},
		"17":                       {from: position{kind: exact, n: 17}},
		"+5":                       {from: position{kind: afterStart, n: 5}},
		"-5":                       {from: position{kind: beforeEnd, n: 5}},
		"3:7":                      {position{kind: exact, n: 3}, to(position{kind: exact, n: 7})},
		":7":                       {position{kind: atStart}, to(position{kind: exact, n: 7})},
		":end":                     {position{kind: atStart}, to(position{kind: atEnd})},
		"start:end":                {position{kind: atStart}, to(position{kind: atEnd})},
		"-5:end":                   {position{kind: beforeEnd, n: 5}, to(position{kind: atEnd})},
		"@-5m":                     {from: at(now.Add(-5 * time.Minute))},
		"@-1d12h":                  {from: at(now.Add(-36 * time.Hour))},
		"@2026-11-29":              {from: at(day)},
		"@2026-11-29T10:30:00Z":    {from: at(day.Add(10*time.Hour + 30*time.Minute))},
		"@2026-11-29T10:30":        {from: at(day.Add(10*time.Hour + 30*time.Minute))},
		"@2026-11-29:1h":           {at(day), to(at(day.Add(time.Hour)))},
		"@2026-11-29T10:30:00Z:1h": {at(day.Add(10*time.Hour + 30*time.Minute)), to(at(day.Add(11*time.Hour + 30*time.Minute)))},
		"@2026-11-29T10:30:00Z:2026-11-29T11:30:00Z": {at(day.Add(10*time.Hour + 30*time.Minute)), to(at(day.Add(11*time.Hour + 30*time.Minute)))},
		"@-2h:-1h":       {at(now.Add(-2 * time.Hour)), to(at(now.Add(-time.Hour)))},
		"@-2h:@-1h":      {at(now.Add(-2 * time.Hour)), to(at(now.Add(-time.Hour)))},
		"@-2h:end":       {at(now.Add(-2 * time.Hour)), to(position{kind: atEnd})},
		"@:-1h":          {position{kind: atStart}, to(at(now.Add(-time.Hour)))},
		"@1796047391":    {from: at(time.Unix(1796047391, 0))},
		"@1796047391204": {from: at(time.UnixMilli(1796047391204))},
	} {
		got, err := parseRange(spec, now)
		same := err == nil && samePosition(got.from, want.from) && (got.to == nil) == (want.to == nil) && (got.to == nil || samePosition(*got.to, *want.to))
		if !same {
			t.Errorf("-o %s is %+v, %v; want %+v", spec, got, err, want)
		}
	}
	for _, spec := range []string{"", "x", "@", "@x", "1:x", "1:-5", ":", "@5m", "5:@", "+-5", "1.5", "@2026-13-01", "9223372036854775808", "@-2h:later"} {
		if got, err := parseRange(spec, now); err == nil || exitCode(context.Background(), err) != exitUsage {
			t.Errorf("-o %q was read as %+v, %v", spec, got, err)
		}
	}
}

func samePosition(a, b position) bool { return a.kind == b.kind && a.n == b.n && a.at.Equal(b.at) }

func TestNearest(t *testing.T) {
	names := []string{"orders", "refunds", "a", "users-by-region"}
	for given, want := range map[string]string{
		"ordres": "orders", "Orders": "orders", "order": "orders", "user-by-region": "users-by-region",
		"xyz": "", "refnd": "", "b": "a", "something-else": "",
	} {
		if got := nearest(given, names); got != want {
			t.Errorf("nearest to %q is %q, want %q", given, got, want)
		}
	}
}

func TestSeedAddresses(t *testing.T) {
	for given, want := range map[string]string{
		"localhost": "localhost:9092", "a:1, b:2": "a:1,b:2", "::1": "[::1]:9092", "[::1]:9": "[::1]:9", "a,,a": "a:9092",
	} {
		got, err := seedAddresses(strings.Split(given, ","))
		if err != nil || strings.Join(got, ",") != want {
			t.Errorf("-b %s gives %v, %v; want %s", given, got, err, want)
		}
	}
	for _, given := range []string{"", " ", "a:b", ":9092", "a:0", "a:70000", "kafka://a:9092"} {
		if got, err := seedAddresses([]string{given}); err == nil {
			t.Errorf("-b %q gives %v", given, got)
		}
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	p := newProgress(&globals{}, &out, 1_000_000)
	p.now = func() time.Time { return now }
	p.started, p.lastDraw = now, now
	for range 25 { // a line each ten seconds
		now = now.Add(time.Second)
		p.add(10_000, 1<<20)
	}
	want := "10%  100,000/1,000,000 rec  1.0 MiB/s  eta 1m30s\n20%  200,000/1,000,000 rec  1.0 MiB/s  eta 1m20s\n"
	if out.String() != want {
		t.Errorf("lines are\n%swant\n%s", out.String(), want)
	}
	out.Reset()
	p.redraw = true
	now = now.Add(time.Second)
	p.add(250_000, 0)
	p.clear()
	if got := out.String(); !strings.HasPrefix(got, "\r\x1b[K[==========>         ] 500,000/1,000,000 rec") || !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("on a terminal it draws %q", got)
	}
	out.Reset()
	p.quiet, p.drawn = true, false
	now = now.Add(time.Minute)
	p.add(1, 1)
	p.clear()
	if out.Len() > 0 {
		t.Errorf("--quiet draws %q", out.String())
	}
}

func TestBehindText(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0.0s", 0.44: "0.4s", 10: "10s", 60: "1m", 252.1: "4m12s", 3600: "1h", 3660: "1h1m", 3601: "1h1s", 36000: "10h", 86400: "1d0h", 1e9: "11,574d1h",
	} {
		if got := behindText(&seconds); got != want {
			t.Errorf("%v seconds are %s, want %s", seconds, got, want)
		}
	}
	if got := behindText(nil); got != "-" {
		t.Errorf("unknown is %s", got)
	}
}

func TestPasswordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pass")
	if err := os.WriteFile(file, []byte("s3cret\r\nnot this\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mechanism, err := saslFromSettings(map[string]string{"user": "u", "pass_file": file, "sasl.mechanism": "plain"})
	if err != nil {
		t.Fatal(err)
	}
	_, first, err := mechanism.Authenticate(context.Background(), "host")
	if err != nil || string(first) != "\x00u\x00s3cret" {
		t.Errorf("PLAIN sends %q, %v", first, err)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -999: "-999", 1234567: "1,234,567"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %s, want %s", n, got, want)
		}
	}
}
