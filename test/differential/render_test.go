package differential

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// renderer turns answers into lines. Its names hold for one script.
type renderer struct {
	base    int64  // what T stands for
	port    int32  // the broker's
	epoch   int32  // the leader epoch of new topics, E in scripts
	script  string // what is written in the script needs no name
	key     int16  // of the answer that is rendered
	names   map[string]string
	counts  map[string]int
	onError func(code int16)
}

func newRenderer(base int64, port, epoch int32, script string) *renderer {
	return &renderer{base: base, port: port, epoch: epoch, script: script, names: map[string]string{}, counts: map[string]int{}}
}

// name is kind-1 for the first value of its kind, and so on.
func (r *renderer) name(kind, value string) string {
	if n, ok := r.names[kind+" "+value]; ok {
		return n
	}
	r.counts[kind]++
	n := fmt.Sprintf("%s-%d", kind, r.counts[kind])
	r.names[kind+" "+value] = n
	return n
}

func (r *renderer) time(ms int64) string {
	switch now := time.Now().UnixMilli(); {
	case ms >= r.base && ms < r.base+10_000:
		return fmt.Sprintf("T+%d", ms-r.base)
	case ms > now-600_000 && ms < now+600_000:
		return "now"
	}
	return fmt.Sprint(ms)
}

func (r *renderer) producer(id int64) string {
	if id < 0 || id >= 900_000 { // scripts invent such ids
		return fmt.Sprint(id)
	}
	return r.name("producer", fmt.Sprint(id))
}

// epochs are the fields that hold leader epochs.
var epochs = map[string]bool{"LeaderEpoch": true, "CurrentLeaderEpoch": true, "CommittedLeaderEpoch": true, "PartitionLeaderEpoch": true,
	"Epoch": true}

// leaderEpochs says whether such a field of this answer holds one: Epoch is also what groups have, and the quorum has epochs of
// its own.
func (r *renderer) leaderEpochs(name string) bool {
	return epochs[name] && r.key != 55 && (name != "Epoch" || r.key == 1)
}

func (r *renderer) leaderEpoch(n int32) string {
	if n < r.epoch {
		return fmt.Sprint(n)
	}
	return strings.TrimSuffix(fmt.Sprintf("E+%d", n-r.epoch), "+0")
}

// response is one answer: its fields as this version has them.
func (r *renderer) response(resp kmsg.Response, raw []byte) []string {
	r.key = resp.Key()
	lines := r.fields(reflect.ValueOf(resp).Elem(), shapeOf(resp.Key(), resp.GetVersion()), "  ")
	if again := resp.AppendTo(nil); !bytes.Equal(again, raw) {
		lines = append(lines, fmt.Sprintf("  not the usual encoding: %d bytes instead of %d", len(raw), len(again)))
	}
	return lines
}

func (r *renderer) fields(v reflect.Value, s *shape, indent string) []string {
	var scalars, nested []string
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Name, v.Field(i)
		inner, ok := s.fields[name]
		if !ok {
			continue
		}
		switch {
		case (name == "RecordBatches" || name == "Records") && f.Kind() == reflect.Slice:
			scalars = append(scalars, fmt.Sprintf("%s:%s", name, size(f, s.nullable[name])))
			for _, l := range r.batchLines(f.Bytes()) {
				nested = append(nested, indent+"  "+l)
			}
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			if f.Len() == 0 {
				scalars = append(scalars, fmt.Sprintf("%s:%s", name, size(f, s.nullable[name])))
				continue
			}
			nested = append(nested, indent+name+":")
			nested = append(nested, r.elements(name, f, inner, indent)...)
		case f.Kind() == reflect.Struct:
			nested = append(nested, indent+name+":")
			nested = append(nested, r.fields(f, inner, indent+"  ")...)
		case f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct && !f.IsNil():
			nested = append(nested, indent+name+":")
			nested = append(nested, r.fields(f.Elem(), inner, indent+"  ")...)
		default:
			scalars = append(scalars, name+":"+r.scalar(name, f, s.nullable[name]))
		}
	}
	return append([]string{indent + strings.Join(scalars, " ")}, nested...)
}

// elements are the lines of a list of structs. Kafka lists the members of a classic group in the order of their random ids, and
// the partitions of a produced topic in that of a hash of its random id: they are sorted by what is said of them.
func (r *renderer) elements(name string, list reflect.Value, s *shape, indent string) (all []string) {
	blocks := make([][]string, list.Len())
	for i := range blocks {
		blocks[i] = r.fields(list.Index(i), s, indent+"    ")
		blocks[i][0] = indent + "  - " + strings.TrimLeft(blocks[i][0], " ")
	}
	if name == "Members" && (r.key == 11 || r.key == 15) || name == "Partitions" && r.key == 0 { // JoinGroup, DescribeGroups; Produce
		slices.SortFunc(blocks, slices.Compare)
	}
	return slices.Concat(blocks...)
}

// size is null, [] or nothing for a list whose content follows.
func size(f reflect.Value, nullable bool) string {
	switch {
	case f.Len() > 0:
		return ""
	case f.IsNil() && nullable:
		return "null"
	}
	return "[]"
}

// texts are fields whose words are each broker's own.
var texts = map[string]bool{"ErrorMessage": true, "Documentation": true, "StatusDetail": true}

func (r *renderer) scalar(name string, f reflect.Value, nullable bool) string {
	if f.Kind() == reflect.Pointer {
		if f.IsNil() {
			return "null"
		}
		return r.scalar(name, f.Elem(), nullable)
	}
	switch f.Kind() {
	case reflect.String:
		return r.text(name, f.String())
	case reflect.Array:
		return r.id(f)
	case reflect.Slice:
		if b, ok := f.Interface().([]byte); ok {
			if b == nil && nullable {
				return "null"
			}
			return fmt.Sprintf("%q", b)
		}
		if f.Len() == 0 {
			return size(f, nullable)
		}
		parts := make([]string, f.Len())
		for i := range parts {
			parts[i] = r.scalar(name, f.Index(i), false)
		}
		return "[" + strings.Join(parts, " ") + "]"
	case reflect.Int16:
		if strings.HasSuffix(name, "ErrorCode") {
			return r.code(int16(f.Int()))
		}
	case reflect.Uint16:
		if name == "Port" && f.Uint() > 0 {
			return "other-port" // that of a controller
		}
	case reflect.Int32:
		switch n := int32(f.Int()); {
		case name == "Port" && n == r.port:
			return "port"
		case name == "Port" && n > 0:
			return "other-port"
		case r.leaderEpochs(name) && n >= r.epoch:
			return r.leaderEpoch(n)
		case name == "ThrottleMillis" && n > 0:
			return "some"
		case name == "SessionID" && n != 0:
			return r.name("session", fmt.Sprint(n))
		}
	case reflect.Int64:
		switch n := f.Int(); {
		case (name == "FinalizedFeaturesEpoch" || name == "LogEndOffset" || name == "HighWatermark" && r.key == 55) && n >= 0:
			return "offset" // of the metadata log
		case name == "ProducerID":
			return r.producer(n)
		case (name == "TotalBytes" || name == "UsableBytes") && n > 0:
			return "bytes"
		case n > 1<<40:
			return r.time(n)
		}
	}
	if s, ok := f.Interface().(fmt.Stringer); ok && f.Kind() != reflect.Int16 {
		return s.String()
	}
	return fmt.Sprint(f.Interface())
}

func (r *renderer) code(code int16) string {
	if r.onError != nil {
		r.onError(code)
	}
	if code == 0 {
		return "0"
	}
	if code == -1 {
		return "-1(UNKNOWN_SERVER_ERROR)"
	}
	if e, ok := kerr.ErrorForCode(code).(*kerr.Error); ok && e.Code == code {
		return fmt.Sprintf("%d(%s)", code, e.Message)
	}
	return fmt.Sprint(code)
}

func (r *renderer) text(name, s string) string {
	written := s == "" || strings.Contains(r.script, s)
	switch {
	case texts[name] && s != "":
		return "present"
	case (name == "MemberID" || name == "LeaderID" || name == "Leader") && !written:
		return r.name("member", s)
	case name == "ClusterID":
		return "cluster-id"
	case (name == "Dir" || name == "LogDir") && s != "" && !written:
		return "log-dir"
	}
	if strings.ContainsAny(s, " \n\t\"") || s == "" || s == "null" {
		return fmt.Sprintf("%q", s)
	}
	return s
}

func (r *renderer) id(f reflect.Value) string {
	b := make([]byte, f.Len())
	reflect.Copy(reflect.ValueOf(b), f)
	if f.IsZero() {
		return "zero"
	}
	text := hex.EncodeToString(b)
	if strings.Contains(r.script, text) {
		return text
	}
	return r.name("topic-id", text)
}
