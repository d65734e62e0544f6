package coordinator

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// TestScripts plays stories of groups against the pure machine and compares the full outcome of each event: replies,
// stored rows, log notes, the state after it and the next deadline.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.HasPrefix(filepath.Base(path), "consumer_") {
			s := newConsumerScript()
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
			return
		}
		s := newScript()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
	})
}

// script is the least shell around one group "g": it stores at once unless told to hold.
type script struct {
	cfg     *settings
	now     time.Time
	start   time.Time
	g       *group
	offsets offsets
	rows    tables
	view    *TopicView
	held    *heldDecision
	hold    bool
	ids     map[string]int
	tokens  []string // index = token
	out     strings.Builder
}

type heldDecision struct {
	next *group
	out  outcome
}

// tables are what Postgres would have.
type tables struct {
	groups  map[string]meta.GroupRow
	members map[memberKey]meta.MemberRow
	offsets map[offsetKey]meta.OffsetRow
}

func newTables() tables {
	return tables{map[string]meta.GroupRow{}, map[memberKey]meta.MemberRow{}, map[offsetKey]meta.OffsetRow{}}
}

// store applies a change as meta does: deletes first.
func (t *tables) store(c *change) {
	set := newRowSet()
	set.add(c)
	var rows meta.ShardChange
	set.fill(&rows, 1)
	for _, k := range rows.DeletedGroups {
		delete(t.groups, k.Group)
		maps.DeleteFunc(t.members, func(m memberKey, _ meta.MemberRow) bool { return m.group == k.Group })
		maps.DeleteFunc(t.offsets, func(o offsetKey, _ meta.OffsetRow) bool { return o.group == k.Group })
	}
	for _, k := range rows.DeletedMembers {
		delete(t.members, memberKey{k.Group, k.MemberID})
	}
	for _, k := range rows.DeletedOffsets {
		delete(t.offsets, offsetKey{k.Group, TopicPartition{k.TopicID, k.Partition}})
	}
	for _, r := range rows.Groups {
		t.groups[r.Group] = r
	}
	for _, r := range rows.Members {
		t.members[memberKey{r.Group, r.MemberID}] = r
	}
	for _, r := range rows.Offsets {
		t.offsets[offsetKey{r.Group, TopicPartition{r.TopicID, r.Partition}}] = r
	}
}

// load rebuilds a group from its rows, nil if there are none.
func (t *tables) load(now time.Time, cfg *settings, id string) (*group, offsets) {
	o := offsets{}
	for k, row := range t.offsets {
		if k.group == id {
			o.apply(&change{offsets: []meta.OffsetRow{row}})
		}
	}
	row, ok := t.groups[id]
	if !ok {
		return nil, o
	}
	var members []meta.MemberRow
	for k, m := range t.members {
		if k.group == id {
			members = append(members, m)
		}
	}
	return loadGroup(now, cfg, row, members), o
}

func testSettings() *settings {
	return &settings{
		initialDelay: 3 * time.Second, newMemberWait: 5 * time.Minute,
		maxSize: 1 << 30, maxPending: 10, metadataMax: 16, retention: 24 * time.Hour,
		embedded: testProtocol,
		topicName: func(id meta.UUID) (string, bool) {
			name := strings.TrimRight(string(id[:]), "\x00")
			return name, !strings.HasPrefix(name, "gone")
		},
	}
}

func topicID(name string) (id meta.UUID) {
	copy(id[:], name)
	return id
}

func newScript() *script {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &script{
		cfg: testSettings(), now: start, start: start, offsets: offsets{}, rows: newTables(),
		ids: map[string]int{}, tokens: []string{""}, view: &TopicView{},
	}
	s.cfg.topics = func() *TopicView { return s.view }
	s.cfg.consumer = testConsumerSettings()
	return s
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	var out outcome
	a := args{t: t, d: d}
	switch d.Cmd {
	case "settings":
		s.settings(a)
		return "ok"
	case "topics":
		s.view = parseTopics(d)
		return "ok"
	case "beat":
		s.beat(d, &out)
	case "join":
		s.join(a, &out)
	case "sync":
		s.sync(a, &out)
	case "leave":
		s.leave(a, &out)
	case "heartbeat":
		err := error(ErrUnknownMember)
		if s.g != nil {
			err = s.g.heartbeat(s.now, &HeartbeatRequest{Group: "g", MemberID: a.str("member"), InstanceID: a.opt("instance"), Generation: a.num("gen", 1)})
		}
		fmt.Fprintf(&s.out, "%s\n", word(err))
	case "commit":
		s.commit(a)
	case "fetch":
		s.fetch(a)
	case "delete-offsets":
		s.deleteOffsets(a)
	case "delete-group":
		c, err := deleteGroup(s.g)
		fmt.Fprintf(&s.out, "%s\n", word(err))
		s.settle(s.g, outcome{change: c})
	case "sweep":
		if s.g != nil {
			c := expired(s.now, s.g, s.offsets)
			s.settle(s.g, outcome{change: c})
		}
	case "advance":
		s.advance(a.dur("by", 0))
	case "restart-timers": // Postgres came back, or the process woke up
		s.g.restartTimers(s.now)
	case "restart":
		s.g, s.offsets = s.rows.load(s.now, s.cfg, "g")
		s.held = nil
	case "hold":
		s.hold = true
	case "store":
		s.hold = false
		if h := s.held; h != nil {
			s.held = nil
			s.rows.store(&h.out.change)
			h.next.keepSessions(s.g)
			s.take(h.next, h.out)
		}
	case "lose": // the change surely did not happen
		s.hold, s.held = false, nil
	case "describe":
		s.describe()
		return s.out.String()
	case "stored":
		s.showTables()
		return s.out.String()
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	s.showState()
	return s.out.String()
}

func (s *script) settings(a args) {
	s.cfg.initialDelay = a.dur("initial-delay", s.cfg.initialDelay)
	s.cfg.maxSize = int(a.num("max-size", int32(s.cfg.maxSize)))
	s.cfg.retention = a.dur("retention", s.cfg.retention)
	s.cfg.migration = ParseMigration(a.str("migration"))
	s.cfg.consumer.maxSize = int(a.num("consumer-max-size", int32(s.cfg.consumer.maxSize)))
}

func (s *script) join(a args, out *outcome) {
	to := s.token(a.str("as"))
	id := a.str("member")
	if s.g == nil {
		if id != "" {
			s.print(reply{to, JoinReply{Err: ErrUnknownMember, MemberID: id, Generation: -1}})
			return
		}
		s.g = newGroup("g", s.cfg)
	}
	if s.g.consumers != nil && s.g.state == empty {
		s.g = s.g.becomeClassic()
	}
	r := &JoinRequest{
		Group: "g", MemberID: id, InstanceID: a.opt("instance"), ClientID: a.strOr("client", "c"), ClientHost: "/127.0.0.1",
		SessionTimeout: a.dur("session", 10*time.Second), RebalanceTimeout: a.dur("rebalance", 60*time.Second),
		ProtocolType: a.strOr("type", "consumer"), Version: int16(a.num("v", 9)),
	}
	for _, p := range strings.Split(a.strOr("protocols", "range:t1"), ",") {
		name, metadata, _ := strings.Cut(p, ":")
		if name != "" {
			r.Protocols = append(r.Protocols, meta.MemberProtocol{Name: name, Metadata: []byte(metadata)})
		}
	}
	prefix := r.ClientID
	if r.InstanceID != nil {
		prefix = *r.InstanceID
	}
	s.ids[prefix]++
	next := s.g.clone()
	next.joinGroup(s.now, to, prefix+"-"+strconv.Itoa(s.ids[prefix]), r, out)
	s.settle(next, *out)
}

func (s *script) sync(a args, out *outcome) {
	to := s.token(a.str("as"))
	if s.g == nil {
		s.print(reply{to, SyncReply{Err: ErrUnknownMember}})
		return
	}
	r := &SyncRequest{
		Group: "g", MemberID: a.str("member"), InstanceID: a.opt("instance"), Generation: a.num("gen", 1),
		ProtocolType: a.opt("type"), Protocol: a.opt("protocol"),
	}
	for _, p := range strings.Split(a.str("assign"), ",") {
		if id, bytes, ok := strings.Cut(p, ":"); ok {
			r.Assignments = append(r.Assignments, Assignment{id, []byte(bytes)})
		}
	}
	next := s.g.clone()
	next.syncGroup(s.now, to, r, out)
	s.settle(next, *out)
}

func (s *script) leave(a args, out *outcome) {
	to := s.token(a.strOr("as", "leave"))
	r := &LeaveRequest{Group: "g"}
	for _, id := range strings.Split(a.str("members"), ",") {
		name, instance, static := strings.Cut(id, "/")
		m := LeaveMember{MemberID: name}
		if static {
			m.InstanceID = &instance
		}
		r.Members = append(r.Members, m)
	}
	next := s.g.clone()
	next.leaveGroup(s.now, to, r, out)
	s.settle(next, *out)
}

func (s *script) commit(a args) {
	r := &CommitRequest{
		Group: "g", MemberID: a.str("member"), InstanceID: a.opt("instance"), Generation: a.num("gen", -1),
		Version: int16(a.num("v", 8)), Retention: a.dur("retention", -1),
	}
	for _, o := range a.all("offsets") { // topic/partition:offset:metadata
		parts := strings.Split(o, ":")
		offset, _ := strconv.Atoi(parts[1])
		p := partition(parts[0])
		commit := CommitOffset{TopicID: p.TopicID, Partition: p.Partition, Offset: int64(offset), LeaderEpoch: a.num("epoch", -1)}
		if len(parts) > 2 {
			commit.Metadata = parts[2]
		}
		r.Offsets = append(r.Offsets, commit)
	}
	if err := checkCommit(s.g, r); err != nil {
		fmt.Fprintf(&s.out, "%s\n", word(err))
		return
	}
	c, reply := commitOffsets(s.now, s.g, s.cfg, r)
	for i, err := range reply.Offsets {
		fmt.Fprintf(&s.out, "%s: %s\n", show(at(r.Offsets[i])), word(err))
	}
	next := s.g
	if next == nil && !c.isEmpty() {
		next = newGroup("g", s.cfg)
		next.emptySince = s.now
	}
	if next != nil && len(c.groups) > 0 {
		next.stored = true
	}
	s.settle(next, outcome{change: c})
}

func (s *script) fetch(a args) {
	var asked []TopicPartition
	for _, p := range a.all("partitions") {
		asked = append(asked, partition(p))
	}
	for _, o := range s.offsets.fetch(asked) {
		fmt.Fprintf(&s.out, "%s: offset %d epoch %d metadata %q\n", show(at(o)), o.Offset, o.LeaderEpoch, o.Metadata)
	}
}

func (s *script) deleteOffsets(a args) {
	r := &DeleteOffsetsRequest{Group: "g"}
	for _, p := range a.all("partitions") {
		topic, _, _ := strings.Cut(p, "/")
		r.Partitions = append(r.Partitions, NamedPartition{partition(p), topic})
	}
	c, reply := deleteOffsets(s.g, r)
	if reply.Err != nil {
		fmt.Fprintf(&s.out, "%s\n", word(reply.Err))
	}
	for i, err := range reply.Partitions {
		fmt.Fprintf(&s.out, "%s: %s\n", show(r.Partitions[i].TopicPartition), word(err))
	}
	s.settle(s.g, outcome{change: c})
}

// advance moves time from deadline to deadline.
func (s *script) advance(by time.Duration) {
	end := s.now.Add(by)
	for s.g != nil {
		at := s.g.deadline()
		if at.IsZero() || at.After(end) {
			break
		}
		if at.After(s.now) {
			s.now = at
		}
		var out outcome
		next := s.g.clone()
		next.tick(s.now, &out)
		fmt.Fprintf(&s.out, "at %s\n", s.now.Sub(s.start))
		s.settle(next, out)
		if s.held != nil {
			break
		}
	}
	s.now = end
}

// settle is the shell's: what must be stored is stored first, or held.
func (s *script) settle(next *group, out outcome) {
	for _, n := range out.notes {
		line := n.text
		if n.member != "" {
			line += " " + n.member
		}
		fmt.Fprintf(&s.out, "note: %s (generation %d)\n", line, n.generation)
	}
	if !out.change.isEmpty() {
		s.showChange(&out.change)
		if s.hold {
			s.held = &heldDecision{next, out}
			return
		}
		s.rows.store(&out.change)
	}
	s.take(next, out)
}

func (s *script) take(next *group, out outcome) {
	s.g = next
	if len(out.change.deletedGroups) > 0 {
		s.g, s.offsets = nil, offsets{}
	}
	s.offsets.apply(&out.change)
	for _, r := range out.replies {
		s.print(r)
	}
}

func (s *script) token(name string) token {
	s.tokens = append(s.tokens, name)
	return token(len(s.tokens) - 1)
}

func partition(s string) TopicPartition {
	topic, n, _ := strings.Cut(s, "/")
	number, _ := strconv.Atoi(n)
	return TopicPartition{topicID(topic), int32(number)}
}

func at(o CommitOffset) TopicPartition { return TopicPartition{o.TopicID, o.Partition} }

func show(p TopicPartition) string {
	return fmt.Sprintf("%s/%d", strings.TrimRight(string(p.TopicID[:]), "\x00"), p.Partition)
}

// codes are Kafka's numbers, so that a script reads like the scenarios.
var codes = map[error]int{
	ErrNotCoordinator: 16, ErrNotAvailable: 15, ErrInvalidGroupID: 24, ErrUnknownMember: 25, ErrInvalidSession: 26,
	ErrRebalancing: 27, ErrIllegalGeneration: 22, ErrInconsistentProtocol: 23, ErrMemberIDRequired: 79,
	ErrFencedInstance: 82, ErrGroupFull: 81, ErrNonEmptyGroup: 68, ErrGroupNotFound: 69, ErrSubscribed: 86, ErrMetadataTooLarge: 12,
	ErrVersionOfCommit: 35, ErrInvalidRequest: 42, ErrFencedEpoch: 110, ErrUnreleasedInstance: 111, ErrUnsupportedAssignor: 112,
	ErrStaleEpoch: 113, ErrInvalidRegex: 128,
}

func word(err error) string {
	if err == nil {
		return "ok"
	}
	for e, code := range codes {
		if errors.Is(err, e) {
			return strconv.Itoa(code)
		}
	}
	return err.Error()
}

// args read a command's arguments, with defaults.
type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) all(key string) []string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			return arg.Vals
		}
	}
	return nil
}

func (a args) str(key string) string { return strings.Join(a.all(key), ",") }

func (a args) strOr(key, fallback string) string {
	if a.d.HasArg(key) {
		return a.str(key)
	}
	return fallback
}

func (a args) opt(key string) *string {
	if !a.d.HasArg(key) {
		return nil
	}
	v := a.str(key)
	return &v
}

func (a args) num(key string, fallback int32) int32 {
	if !a.d.HasArg(key) {
		return fallback
	}
	n, err := strconv.ParseInt(a.str(key), 10, 32)
	if err != nil {
		a.t.Fatalf("%s: %v", a.d.Pos, err)
	}
	return int32(n)
}

func (a args) dur(key string, fallback time.Duration) time.Duration {
	if !a.d.HasArg(key) {
		return fallback
	}
	v, err := time.ParseDuration(a.str(key))
	if err != nil {
		a.t.Fatalf("%s: %v", a.d.Pos, err)
	}
	return v
}

func sortedKeys[K comparable, V any](m map[K]V, name func(K) string) []K {
	return slices.SortedFunc(maps.Keys(m), func(a, b K) int { return strings.Compare(name(a), name(b)) })
}
