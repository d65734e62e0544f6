package main

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// genBytes draws null, empty, text and bytes that are no text.
func genBytes() *rapid.Generator[[]byte] {
	return rapid.OneOf(
		rapid.Just([]byte(nil)),
		rapid.Just([]byte{}),
		rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
		rapid.SliceOfN(rapid.Byte(), 1, 40),
		rapid.SampledFrom([][]byte{[]byte("<&>"), []byte("\u2028\u0000\"\\"), []byte(`\ud800`), []byte("\ufffd"), {0xff}, {0xed, 0xa0, 0x80}, []byte("a\nb\r\n")}),
	)
}

func genRecord(topic string, partitions int32) *rapid.Generator[*kgo.Record] {
	return rapid.Custom(func(t *rapid.T) *kgo.Record {
		r := &kgo.Record{
			Topic:     topic,
			Partition: rapid.Int32Range(0, partitions-1).Draw(t, "partition"),
			Key:       genBytes().Draw(t, "key"),
			Value:     genBytes().Draw(t, "value"),
			Timestamp: time.UnixMilli(rapid.OneOf(
				rapid.Just(int64(-1)), rapid.Just(int64(0)),
				rapid.Int64Range(minTimestampMs, maxTimestampMs),
				rapid.Int64Range(1_700_000_000_000, 1_800_000_000_000),
			).Draw(t, "timestamp")),
		}
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			r.Headers = append(r.Headers, kgo.RecordHeader{
				Key:   string(rapid.OneOf(rapid.Just([]byte("again")), genBytes()).Draw(t, "header key")),
				Value: genBytes().Draw(t, "header value"),
			})
		}
		return r
	})
}

// differs tells how two records differ, null from empty included, or "".
func differs(a, b *kgo.Record) string {
	same := func(x, y []byte) bool { return bytes.Equal(x, y) && (x == nil) == (y == nil) }
	switch {
	case a.Partition != b.Partition:
		return fmt.Sprintf("partition %d, %d", a.Partition, b.Partition)
	case !same(a.Key, b.Key):
		return fmt.Sprintf("key %#v, %#v", a.Key, b.Key)
	case !same(a.Value, b.Value):
		return fmt.Sprintf("value %#v, %#v", a.Value, b.Value)
	case a.Timestamp.UnixMilli() != b.Timestamp.UnixMilli():
		return fmt.Sprintf("timestamp %d, %d", a.Timestamp.UnixMilli(), b.Timestamp.UnixMilli())
	case len(a.Headers) != len(b.Headers):
		return fmt.Sprintf("%d headers, %d", len(a.Headers), len(b.Headers))
	}
	for i := range a.Headers {
		if a.Headers[i].Key != b.Headers[i].Key || !same(a.Headers[i].Value, b.Headers[i].Value) {
			return fmt.Sprintf("headers[%d] %#v, %#v", i, a.Headers[i], b.Headers[i])
		}
	}
	return ""
}

func TestRecordJSONLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRecord("orders", 5).Draw(t, "record")
		line, err := appendRecordJSON(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(line, []byte("\n")); n != 1 || line[len(line)-1] != '\n' {
			t.Fatalf("%q is not one line", line)
		}
		back, named, err := parseRecordJSON(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if d := differs(r, back); d != "" || back.Topic != r.Topic || !named {
			t.Fatalf("%s: %s", line, d)
		}
	})
}

// TestConsumeProduceLosesNothing copies random records from one topic to another by
// "consume -f json | produce -f json" through a fake Kafka and compares what is stored. The seeds
// are fixed, because each round costs many requests.
func TestConsumeProduceLosesNothing(t *testing.T) {
	const partitions, rounds = 3, 12
	addr := newCluster(t)
	for seed := range rounds {
		from, to := fmt.Sprintf("from-%d", seed), fmt.Sprintf("to-%d", seed)
		records := rapid.SliceOfN(genRecord(from, partitions), 10, 60).Example(seed)
		mustRun(t, addr, "", "topic", "create", from, to, "-p", fmt.Sprint(partitions))
		produceKgo(t, addr, records...)
		text := mustRun(t, addr, "", "consume", from, "-f", "json")
		mustRun(t, addr, text, "produce", to, "-f", "json", "-q")
		want, got := readAll(t, addr, from, len(records)), readAll(t, addr, to, len(records))
		for p, rs := range want {
			if len(rs) != len(got[p]) {
				t.Fatalf("seed %d: %d records in %s-%d, %d in %s-%d", seed, len(rs), from, p, len(got[p]), to, p)
			}
			for i, r := range rs {
				if d := differs(r, got[p][i]); d != "" {
					t.Fatalf("seed %d: %s-%d@%d: %s", seed, to, p, i, d)
				}
			}
		}
	}
}

// readAll reads n records of a topic with a client of its own, by partition.
func readAll(t testing.TB, addr, topic string, n int) map[int32][]*kgo.Record {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out := map[int32][]*kgo.Record{}
	for read := 0; read < n; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("read %s: %d of %d records: %v", topic, read, n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			out[r.Partition] = append(out[r.Partition], r)
			read++
		})
	}
	return out
}

func TestParseRecordJSONRefuses(t *testing.T) {
	for _, line := range []string{
		``, `x`, `[]`, `"a"`, `5`, `{"value":5}`, `{"value":["a"]}`, `{"value":"a"`, `{"value":"a"}{}`,
		`{"valu":"a"}`, `{"key":"a","key_b64":"YQ=="}`, `{"key":null,"key_b64":"YQ=="}`, `{"key_b64":"Y"}`,
		`{"partition":-1}`, `{"partition":"0"}`, `{"partition":3000000000}`,
		`{"timestamp":"now"}`, `{"timestamp":1.5}`, `{"timestamp":true}`, `{"timestamp":99999999999999999}`, `{"timestamp":"0001-01-01T00:00:00Z"}`,
		`{"headers":{}}`, `{"headers":[[]]}`, `{"headers":[["a"]]}`, `{"headers":[["a","b","c"]]}`, `{"headers":[[null,"b"]]}`,
		`{"headers":[["a",1]]}`, `{"headers":[["a",{}]]}`, `{"headers":[["a",{"b64":"!"}]]}`, `{"headers":[["a",{"b64":"YQ==","x":1}]]}`,
		"{\"value\":\"\xff\"}", `{"value":"\ud800"}`, `{"value":"\udc00\ud800"}`, `{"value":"\ud800\u0041"}`,
	} {
		if r, _, err := parseRecordJSON([]byte(line)); err == nil {
			t.Errorf("%s was read as %+v", line, r)
		} else if bytes.Contains([]byte(err.Error()), []byte("Go ")) {
			t.Errorf("%s: the error speaks of Go: %v", line, err)
		}
	}
	// What looks alike but is right.
	for line, want := range map[string]string{
		`{"value":"\ud83d\ude00"}`: "\U0001f600",
		`{"value":"\\ud800"}`:      `\ud800`,
		`{"value":"\\\\u"}`:        `\\u`,
		`{"value":"\ufffd"}`:       "\ufffd",
	} {
		if r, _, err := parseRecordJSON([]byte(line)); err != nil || string(r.Value) != want {
			t.Errorf("%s: %v, %v; want value %q", line, r, err, want)
		}
	}
}

func FuzzParseRecordJSON(f *testing.F) {
	f.Add([]byte(`{"topic":"t","partition":0,"timestamp":"2026-11-30T14:03:11.204Z","key":"k","value_b64":"/w==","headers":[["a",null]]}`))
	f.Add([]byte(`{"value":"\ud83d\ude00"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, _, err := parseRecordJSON(line)
		if err != nil {
			return
		}
		if r.Timestamp.IsZero() {
			r.Timestamp = time.UnixMilli(0)
		}
		r.Partition = max(r.Partition, 0)
		again, err := appendRecordJSON(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		back, _, err := parseRecordJSON(again)
		if err != nil {
			t.Fatalf("%s became %s: %v", line, again, err)
		}
		if d := differs(r, back); d != "" {
			t.Fatalf("%s became %s: %s", line, again, d)
		}
	})
}
