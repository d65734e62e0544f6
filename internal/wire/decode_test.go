package wire

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// allRoutes is every request that the codec knows, at every version.
func allRoutes(tb testing.TB) []*route {
	var out []*route
	for key := range int16(kmsg.MaxKey + 1) {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		rt, err := newRoute(API{Key: key, Max: req.MaxVersion(), Handle: echoHeartbeat})
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, rt)
	}
	return out
}

// decodeCost decodes body and returns what it allocated.
func decodeCost(rt *route, version int16, body []byte) (bytes int64, msg kmsg.Request, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	msg, err = rt.decode(version, body)
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc), msg, err
}

// slack is for what any decode allocates: the message, the error.
const slack = 2 << 10

// Counts and lengths that lie: each four bytes of a small frame become 2^31-1, -1 or -2^31, each byte a varint that
// overflows or claims much. Whatever it reads, the codec allocates no more than the weight says, and never panics.
func TestLyingCounts(t *testing.T) {
	lies := [][]byte{
		{0x7f, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xff}, {0x80, 0, 0, 0}, {0x7f, 0xff},
		{0xff, 0xff, 0xff, 0xff, 0x07}, {0xff, 0xff, 0xff, 0xff, 0x0f}, {0xff, 0xff, 0xff, 0xff, 0x7f}, {0x80, 0x80, 0x80, 0x80, 0x80, 0x80},
	}
	var before, after runtime.MemStats
	for _, rt := range allRoutes(t) {
		for v := rt.Min; v <= rt.Max; v++ {
			body, bound := filled(rt.Key, v, 2), int64(0)
			runtime.ReadMemStats(&before)
			for at := range body {
				for _, lie := range lies {
					b := append(append(body[:at:at], lie...), body[at:]...)
					bound += int64(len(b))*rt.weights[v] + slack
					if _, err := rt.decode(v, b); err != nil && strings.Contains(err.Error(), "panicked") {
						t.Fatal(err)
					}
				}
			}
			runtime.ReadMemStats(&after)
			if cost := int64(after.TotalAlloc - before.TotalAlloc); cost > bound*raceFactor {
				t.Errorf("%s v%d: %d bytes of memory, at most %d expected", rt.name, v, cost, bound)
			}
		}
	}
}

// filled encodes a request whose lists, and those inside them, have n empty elements.
func filled(key, version int16, n int) []byte {
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	fill(reflect.ValueOf(req).Elem(), n, n, false)
	return req.AppendTo(nil)
}

// fill gives lists n empty elements, those inside them inner, and each struct an unknown tag if tags.
func fill(v reflect.Value, n, inner int, tags bool) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case !f.CanSet():
		case f.Type() == tagsType:
			if tags {
				f.Addr().Interface().(*kmsg.Tags).Set(100, nil)
			}
		case f.Kind() == reflect.Struct:
			fill(f, n, inner, tags)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() != reflect.Uint8:
			s := reflect.MakeSlice(f.Type(), n, n)
			for j := range n {
				s.Index(j).Set(newDefault(f.Type().Elem()).Elem())
				if s.Index(j).Kind() == reflect.Struct {
					fill(s.Index(j), inner, inner, tags)
				}
			}
			f.Set(s)
		}
	}
}

// The weight of each request holds for the worst that we can make of it: many elements with nothing in them, with
// and without tags; few elements with many tags. And what is measured after decoding is near what was allocated.
func TestWeightsHold(t *testing.T) {
	near := 0.0
	for _, rt := range allRoutes(t) {
		for v := rt.Min; v <= rt.Max; v++ {
			if v > rt.Min && v < rt.Max && rt.weights[v] == rt.weights[v-1] {
				continue
			}
			for _, inner := range []int{0, 1, 10} {
				for _, tags := range []bool{false, true} {
					req := kmsg.RequestForKey(rt.Key)
					req.SetVersion(v)
					fill(reflect.ValueOf(req).Elem(), 900/(1+inner*inner/4), inner, tags)
					body := req.AppendTo(nil)
					cost, msg, err := decodeCost(rt, v, body)
					if err != nil {
						t.Fatalf("%s v%d does not read its own writing: %v", rt.name, v, err)
					}
					bound := int64(len(body)) * rt.weights[v] * raceFactor
					if cost > bound+slack {
						t.Errorf("%s v%d: %d bytes cost %d, weight %d (inner %d, tags %v)", rt.name, v, len(body), cost, rt.weights[v], inner, tags)
					}
					if len(body) > 2000 {
						near = max(near, float64(cost)/float64(bound))
					}
					if kept := rt.footprint(msg); kept > cost*5/4+slack || kept < cost/4/raceFactor-slack {
						t.Errorf("%s v%d: measured %d of %d bytes (inner %d, tags %v)", rt.name, v, kept, cost, inner, tags)
					}
				}
			}
		}
	}
	t.Logf("the worst came to %.0f %% of its bound", 100*near)
	if near < 0.3 {
		t.Error("the bound is far from anything seen: the test or the weight is wrong")
	}
}

func TestManyTagsOfOneStruct(t *testing.T) {
	for _, rt := range allRoutes(t) {
		if !rt.flexible(rt.Max) {
			continue
		}
		req := kmsg.RequestForKey(rt.Key)
		req.SetVersion(rt.Max)
		body := req.AppendTo(nil)
		if body[len(body)-1] != 0 {
			continue // optional fields are there already
		}
		for _, n := range []uint32{100, 120, 20000} {
			b := binary.AppendUvarint(body[:len(body)-1:len(body)-1], uint64(n))
			for tag := range n {
				b = append(binary.AppendUvarint(b, uint64(tag+5)), 0)
			}
			if cost, _, err := decodeCost(rt, rt.Max, b); err != nil || cost > int64(len(b))*rt.weights[rt.Max]*raceFactor+slack {
				t.Errorf("%s: %d tags in %d bytes cost %d, weight %d, %v", rt.name, n, len(b), cost, rt.weights[rt.Max], err)
			}
		}
	}
}

// recordBytes finds exactly the records of a well-formed Produce, whatever its version.
func TestRecordBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for version := int16(3); version <= 13; version++ {
		for range 50 {
			req := kmsg.NewPtrProduceRequest()
			req.Version = version
			if rng.IntN(2) == 0 {
				req.TransactionID = kmsg.StringPtr(strings.Repeat("t", rng.IntN(300)))
			}
			want := int64(0)
			for range rng.IntN(4) {
				topic := kmsg.NewProduceRequestTopic()
				topic.Topic = strings.Repeat("n", rng.IntN(200))
				for range rng.IntN(4) {
					p := kmsg.NewProduceRequestTopicPartition()
					if rng.IntN(3) > 0 {
						p.Records = make([]byte, rng.IntN(1000))
						want += int64(len(p.Records))
					}
					if rng.IntN(3) == 0 {
						p.UnknownTags.Set(9, make([]byte, rng.IntN(200)))
					}
					topic.Partitions = append(topic.Partitions, p)
				}
				req.Topics = append(req.Topics, topic)
			}
			if got := recordBytes(req.AppendTo(nil), version); got != want {
				t.Fatalf("v%d: %d bytes of records, want %d", version, got, want)
			}
		}
	}
}

func TestRegistryRefuses(t *testing.T) {
	h := echoHeartbeat
	for want, apis := range map[string][]API{
		"Heartbeat (12) is listed twice":      {{Key: 12, Handle: h}, {Key: 12, Handle: h}},
		"api key 999 is unknown":              {{Key: 999, Handle: h}},
		"api key -1 is unknown":               {{Key: -1, Handle: h}},
		"versions 2 to 1 are no range":        {{Key: 12, Min: 2, Max: 1, Handle: h}},
		"versions -1 to 1 are no range":       {{Key: 12, Min: -1, Max: 1, Handle: h}},
		"codec knows versions up to 4, not 5": {{Key: 12, Max: 5, Handle: h}},
		"advertised minimum 2 is not":         {{Key: 12, Min: 1, Max: 4, AdvertisedMin: 2, Handle: h}},
		"no handler":                          {{Key: 12}},
	} {
		if _, err := NewRegistry(apis); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestAdvertisedRanges(t *testing.T) {
	r, err := NewRegistry([]API{{Key: 12, Min: 1, AdvertisedMin: 1, Max: 4, Handle: echoHeartbeat}, {Key: 0, Min: 3, Max: 12, Handle: echoHeartbeat}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.AdvertisedRanges(), []VersionRange{{0, 0, 12}, {12, 1, 4}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
