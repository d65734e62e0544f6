package config

import (
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// load reads a file's text, variables and flags.
func load(file string, env, set []string) (*Config, []string, error) {
	src := Sources{Env: env, Set: set}
	if file != "" {
		src.File = "server.properties"
		src.Read = func(string) ([]byte, error) { return []byte(file), nil }
	}
	return Load(src)
}

func mustLoad(t *testing.T, file string, env, set []string) *Config {
	t.Helper()
	c, _, err := load(file, env, set)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLaterSourcesWin(t *testing.T) {
	file := "num.partitions=2\nlog.segment.bytes=2000000\nmessage.max.bytes=3000\ngroup.max.size=7\n"
	env := []string{"KAFKA_CFG_MESSAGE_MAX_BYTES=1", "KAFKA_MESSAGE_MAX_BYTES=4000", "PGBROKER_LOG_SEGMENT_BYTES=3000000", "KAFKA_LOG_SEGMENT_BYTES=2500000",
		"KAFKA_CFG_GROUP_MAX_SIZE=8"}
	c := mustLoad(t, file, env, []string{"message.max.bytes=5000"})
	for _, want := range []struct {
		name   string
		value  int
		source Source
	}{
		{"num.partitions", 2, File},
		{"group.max.size", 8, Env},
		{"log.segment.bytes", 3000000, Env},
		{"message.max.bytes", 5000, Flag},
		{"fetch.max.bytes", 57671680, Default},
	} {
		if got := c.Int(want.name); got != want.value || c.Source(want.name) != want.source {
			t.Errorf("%s is %d from the %s, want %d from the %s", want.name, got, c.Source(want.name), want.value, want.source)
		}
	}
}

func TestAliases(t *testing.T) {
	for _, c := range []struct {
		set         []string
		name, value string
		source      Source
	}{
		{nil, "log.retention.ms", "604800000", Default},
		{[]string{"log.retention.hours=1"}, "log.retention.ms", "3600000", Flag},
		{[]string{"log.retention.hours=1", "log.retention.minutes=2"}, "log.retention.ms", "120000", Flag},
		{[]string{"log.retention.hours=1", "log.retention.minutes=2", "log.retention.ms=3"}, "log.retention.ms", "3", Flag},
		{[]string{"log.retention.hours=-1"}, "log.retention.ms", "-1", Flag},
		{[]string{"log.retention.hours=2147483647"}, "log.retention.ms", "7730941129200000", Flag},
		{[]string{"log.roll.hours=2"}, "log.roll.ms", "7200000", Flag},
		{[]string{"broker.id=5"}, "node.id", "5", Flag},
		{[]string{"broker.id=5", "node.id=5"}, "node.id", "5", Flag},
		{[]string{"log.dir=/a"}, "log.dirs", "/a", Flag},
		{[]string{"log.dir=/a", "log.dirs=/b"}, "log.dirs", "/b", Flag},
		{nil, "log.dirs", "", Default},
		{nil, "log.flush.interval.ms", "9223372036854775807", Default},
	} {
		cfg := mustLoad(t, "", nil, c.set)
		if got := cfg.String(c.name); got != c.value || cfg.Source(c.name) != c.source {
			t.Errorf("%v: %s is %q (%s), want %q (%s)", c.set, c.name, got, cfg.Source(c.name), c.value, c.source)
		}
	}
}

func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		file     string
		env, set []string
		want     string
	}{
		"file, unknown":       {file: "a=\n# c\nlistners=PLAINTEXT://:9092", want: "server.properties:1: a=: unknown property\nserver.properties:3: listners=PLAINTEXT://:9092: unknown property; did you mean listeners?"},
		"file, value":         {file: "num.partitions=zero", want: "server.properties:1: num.partitions=zero: must be a whole number, at least 1"},
		"file, topic key":     {file: "retention.ms=1", want: "server.properties:1: retention.ms=1: a property of topics; its default for all topics is log.retention.ms"},
		"file, syntax":        {file: "node.id=1\nx=\\u00", want: `server.properties: line 2: \u needs four hexadecimal digits`},
		"set, unknown":        {set: []string{"logdirs=/x"}, want: "--set logdirs=/x: unknown property; did you mean log.dirs?"},
		"set, no value":       {set: []string{"num.partitions"}, want: "--set num.partitions: must be key=value"},
		"ours, unknown":       {env: []string{"PGBROKER_POSTGRES_URI=host=x"}, want: "PGBROKER_POSTGRES_URI=host=x: unknown property; did you mean postgres.url?"},
		"kafka, value":        {env: []string{"KAFKA_NUM_PARTITIONS=0"}, want: "KAFKA_NUM_PARTITIONS=0: must be at least 1"},
		"two ids":             {set: []string{"node.id=1", "broker.id=2"}, want: "node.id=1 and broker.id=2 are the same property and differ"},
		"controller":          {env: []string{"KAFKA_PROCESS_ROLES=controller"}, want: "process.roles=controller: there are no controllers here; run brokers only"},
		"several brokers":     {env: []string{"KAFKA_CONTROLLER_QUORUM_VOTERS=1@a:1,2@b:1"}, want: "controller.quorum.voters=1@a:1,2@b:1: brokers form one cluster through one Postgres; set postgres.url"},
		"session bounds":      {set: []string{"group.min.session.timeout.ms=2000000"}, want: "group.min.session.timeout.ms=2000000: must not be above group.max.session.timeout.ms=1800000"},
		"lease":               {set: []string{"broker.session.timeout.ms=900"}, want: "broker.heartbeat.interval.ms=500: must be at most half of broker.session.timeout.ms=900"},
		"queue below request": {set: []string{"queued.max.request.bytes=1000"}, want: "queued.max.request.bytes=1000: must be -1 or at least socket.request.max.bytes=104857600"},
		"durability":          {set: []string{"durability=lax"}, want: "--set durability=lax: must be one of strict, relaxed"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _, err := load(c.file, c.env, c.set)
			if message(err) != c.want || cfg != nil {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestAFileThatCannotBeRead(t *testing.T) {
	gone := errors.New("open x: no such file")
	_, _, err := Load(Sources{File: "x", Read: func(string) ([]byte, error) { return nil, gone }})
	if !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

func TestStrangersInTheEnvironment(t *testing.T) {
	env := []string{
		"KAFKA_PORT=tcp://10.0.0.1:9092", "KAFKA_HEAP_OPTS=-Xmx1g", "KAFKA_JMX_PORT=9999", "KAFKA_LOG4J_OPTS=x", "KAFKA_VERSION=4.4.0",
		"KAFKA_OPTS=-D", "KAFKA_GC_LOG_OPTS=", "KAFKA_TOOLS_LOG4J_LOGLEVEL=x", "KAFKA_CREATE_TOPICS=a:1:1",
		"PGBROKER_BROKERS=x:1", "PGBROKER_PROFILE=p", "PGBROKER_OUTPUT=json", "PGBROKER_TLS_CA=x", "PGBROKER_SASL_PASSWORD=x",
		"PGBROKER_TEST_REQUIRE=all", "PGBROKER_POSTGRES_BINDIR=/x", "PATH=/bin", "NUM_PARTITIONS=9", "KAFKA_NUM_PARTITIONS= ",
		"KAFKA_LISTENER_NAME_EXTERNAL_SSL_KEYSTORE_LOCATION=/x", "KAFKA_NUM_IO_THREADS=8", "KAFKA_PROCESS_ROLES=broker,controller",
	}
	c, warnings, err := load("", env, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"KAFKA_LISTENER_NAME_EXTERNAL_SSL_KEYSTORE_LOCATION has no effect: settings of one listener are not available yet",
		"KAFKA_PORT is not a known property and is ignored",
		"num.io.threads has no effect: goroutines take the place of thread pools",
		"process.roles has no effect: there is no KRaft controller: Postgres takes its place",
	}
	if !reflect.DeepEqual(warnings, want) {
		t.Errorf("warnings:\n%s\nwant:\n%s", strings.Join(warnings, "\n"), strings.Join(want, "\n"))
	}
	if c.Int("num.partitions") != 1 {
		t.Errorf("num.partitions is %d", c.Int("num.partitions"))
	}
}

func TestRepeatedKeyInAFile(t *testing.T) {
	c, warnings, err := load("num.partitions=2\nnum.partitions=3\n", nil, nil)
	if err != nil || c.Int("num.partitions") != 3 {
		t.Fatalf("%v, %v", c, err)
	}
	if want := []string{"server.properties:2: num.partitions is set before, in line 1; the last one counts"}; !reflect.DeepEqual(warnings, want) {
		t.Errorf("warnings %q", warnings)
	}
}

func TestVariableNames(t *testing.T) {
	for variable, property := range map[string]string{
		"LOG_SEGMENT_BYTES": "log.segment.bytes",
		"A___B__C_D":        "a-b_c.d",
	} {
		if got := propertyName(variable); got != property {
			t.Errorf("%s is %s, want %s", variable, got, property)
		}
		if got := variableName("", property); got != variable {
			t.Errorf("%s is %s, want %s", property, got, variable)
		}
	}
}

func TestDurations(t *testing.T) {
	c := mustLoad(t, "", nil, []string{"connections.max.idle.ms=-1"})
	for name, want := range map[string]time.Duration{
		"postgres.wait.ms":            30 * time.Second,
		"offsets.retention.minutes":   7 * 24 * time.Hour,
		"log.retention.hours":         7 * 24 * time.Hour,
		"quota.window.size.seconds":   time.Second,
		"log.flush.interval.ms":       math.MaxInt64,
		"connections.max.idle.ms":     -time.Millisecond,
		"broker.session.timeout.ms":   3 * time.Second,
		"offsets.commit.timeout.ms":   5 * time.Second,
		"log.segment.delete.delay.ms": time.Minute,
	} {
		if got := c.Duration(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// TestSecretsStayHidden puts one secret everywhere a secret can be put, wrong and right, and looks for it in all that
// comes out.
func TestSecretsStayHidden(t *testing.T) {
	const secret = "s3cr3t"
	urls := []string{
		"postgres://u:" + secret + "@h/db", "postgres://u:" + secret + "@h:x/db", "postgres://u:a/" + secret + "@h/db",
		"postgres://u:%zz" + secret + "@h/db", "postgres://h/db?user=u&password=" + secret, "host=h password=" + secret,
		"host=h password = '" + secret + " x' dbname=d", "host=h PASSWORD='" + secret, "postgres://u:x@y:" + secret + "@h1,h2/db",
	}
	for _, u := range urls {
		for _, src := range []Sources{
			{Set: []string{"postgres.url=" + u}}, {Env: []string{"PGBROKER_POSTGRES_URL=" + u}}, {Env: []string{"PGBROKER_POSTGRES_URI=" + u}},
			{Set: []string{"postgres_url=" + u}}, {Env: []string{"KAFKA_SOMETHING=" + u}}, {Set: []string{u}},
			{File: "f", Read: func(string) ([]byte, error) { return []byte("postgres.uri: " + u), nil }},
			{Set: []string{"listeners=" + u}}, {Set: []string{"ssl.key.password=" + secret}}, {Set: []string{"my.password=" + secret}},
		} {
			c, warnings, err := Load(src)
			out := fmt.Sprint(warnings, err)
			if c != nil {
				out += fmt.Sprintf("%v %+v %#v %s", c, c, c, c.Shown("postgres.url"))
				out += fmt.Sprint(c.DescribeBroker())
			}
			if strings.Contains(out, secret) && !strings.HasPrefix(strings.Join(src.Set, ""), "listeners=") {
				t.Errorf("%v %v: %s", src.Set, src.Env, out)
			}
		}
	}
	c := mustLoad(t, "", nil, []string{"postgres.url=postgres://u:" + secret + "@h:5432/db?sslmode=require"})
	if got, want := c.Shown("postgres.url"), "postgres://u:xxxxx@h:5432/db?sslmode=require"; got != want {
		t.Errorf("shown as %s, want %s", got, want)
	}
	if got := c.String("postgres.url"); !strings.Contains(got, secret) {
		t.Errorf("the code reads %s", got)
	}
}

func TestUnknownNamePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	mustLoad(t, "", nil, nil).String("no.such.thing")
}

// TestTheImagesOwnFile reads the server.properties that Kafka's image starts from: it must be taken, with warnings.
func TestTheImagesOwnFile(t *testing.T) {
	text, err := os.ReadFile("testdata/server.properties")
	if err != nil {
		t.Fatal(err)
	}
	c, warnings, err := load(string(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) == 0 {
		t.Error("no warning")
	}
	listeners, err := c.Listeners()
	if err != nil || len(listeners) != 1 || listeners[0].AdvertisedHost != "localhost" {
		t.Errorf("listeners %+v, %v", listeners, err)
	}
}
