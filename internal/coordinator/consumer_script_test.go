package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// consumerScript plays a story of one group of the consumer protocol; every decision is stored at once.
type consumerScript struct {
	cfg   *consumerSettings
	now   time.Time
	start time.Time
	c     *consumers
	rows  tables
	view  *TopicView
	newID int
	out   strings.Builder
}

func newConsumerScript() *consumerScript {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &consumerScript{
		cfg: testConsumerSettings(), now: start, start: start, rows: newTables(), view: &TopicView{},
	}
	s.c = newConsumers("g", s.cfg)
	return s
}

func testConsumerSettings() *consumerSettings {
	return &consumerSettings{session: 45 * time.Second, interval: 5 * time.Second, maxSize: 4, assignors: []string{assignorUniform, assignorRange}}
}

// parseTopics reads all topics that there are: a=2 b=1.
func parseTopics(d *datadriven.TestData) *TopicView {
	view := &TopicView{ByName: map[string]meta.UUID{}, Partitions: map[meta.UUID]int32{}}
	for _, a := range d.CmdArgs {
		n, _ := strconv.Atoi(a.Vals[0])
		view.ByName[a.Key], view.Partitions[topicID(a.Key)] = topicID(a.Key), int32(n)
	}
	return view
}

func (s *consumerScript) run(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	switch d.Cmd {
	case "topics": // topics a=2 b=1: all that there are
		s.view = parseTopics(d)
		return "ok\n"
	case "beat":
		s.beat(d)
	case "advance":
		s.advance(t, d)
	case "restart":
		s.restart()
	case "describe":
		s.describe()
		return s.out.String()
	case "commit":
		return fmt.Sprintln(s.commit(d))
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	s.state()
	return s.out.String()
}

// beat member=m epoch=0 [topics=a,b] [regex=x] [owned=a:0,b:1 | owned] [instance=i] [assignor=x] [timeout=30s] [v1]
func parseBeat(d *datadriven.TestData) *ConsumerHeartbeatRequest {
	r := &ConsumerHeartbeatRequest{Group: "g", RebalanceTimeout: -1}
	text := func(a datadriven.CmdArg) *string {
		v := strings.Join(a.Vals, ",")
		return &v
	}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "member":
			r.MemberID = *text(a)
		case "epoch":
			n, _ := strconv.Atoi(a.Vals[0])
			r.MemberEpoch = int32(n)
		case "topics":
			r.Topics = strings.FieldsFunc(*text(a), func(c rune) bool { return c == ',' })
			if r.Topics == nil {
				r.Topics = []string{}
			}
		case "regex":
			r.Regex = text(a)
		case "instance":
			r.InstanceID = text(a)
		case "assignor":
			r.Assignor = text(a)
		case "timeout":
			r.RebalanceTimeout, _ = time.ParseDuration(a.Vals[0])
		case "owned":
			r.Owned = parsePartitions(strings.Split(*text(a), ","))
		case "v1":
			r.NamesItself = true
		}
	}
	return r
}

func (s *consumerScript) beat(d *datadriven.TestData) {
	r := parseBeat(d)
	if err := r.check(s.cfg.assignors); err != nil {
		fmt.Fprintf(&s.out, "-> %v\n", codeText(err))
		return
	}
	next := s.c.clone()
	var out outcome
	s.newID++
	reply := next.heartbeat(s.now, s.view, fmt.Sprintf("new-%d", s.newID), r, &out)
	if reply.Err != nil {
		fmt.Fprintf(&s.out, "-> %v\n", codeText(reply.Err))
		return
	}
	s.store(next, &out)
	fmt.Fprintf(&s.out, "-> %s epoch=%d", reply.MemberID, reply.MemberEpoch)
	if reply.Assignment != nil {
		fmt.Fprintf(&s.out, " may have [%s]", partitionsText(assignedFrom(reply.Assignment)))
	}
	s.out.WriteString("\n")
}

func (s *consumerScript) store(next *consumers, out *outcome) {
	next.store(s.now, out)
	for _, n := range out.notes {
		fmt.Fprintf(&s.out, "note: %s %s\n", n.text, n.member)
	}
	var written []string
	for _, m := range out.change.members {
		written = append(written, m.MemberID)
	}
	for _, m := range out.change.deletedMembers {
		written = append(written, "-"+m.member)
	}
	if len(out.change.groups) > 0 {
		written = append(written, "group")
	}
	if len(written) > 0 {
		fmt.Fprintf(&s.out, "store %s\n", strings.Join(written, " "))
	}
	s.rows.store(&out.change)
	next.keepSessions(s.c)
	s.c = next
}

// advance by=3s: time passes, timers fire on the way.
func (s *consumerScript) advance(t *testing.T, d *datadriven.TestData) {
	var by string
	d.ScanArgs(t, "by", &by)
	step, _ := time.ParseDuration(by)
	end := s.now.Add(step)
	for {
		at := s.c.deadline()
		if at.IsZero() || at.After(end) {
			break
		}
		s.now = at
		fmt.Fprintf(&s.out, "at %v\n", at.Sub(s.start))
		next := s.c.clone()
		var out outcome
		next.tick(s.now, &out)
		s.store(next, &out)
	}
	s.now = end
}

func (s *consumerScript) restart() {
	row, ok := s.rows.groups["g"]
	if !ok {
		s.c = newConsumers("g", s.cfg)
		return
	}
	s.c = loadConsumers(s.now, s.cfg, row, slices.Collect(maps.Values(s.rows.members)))
}

// state prints the group and each member: epoch/previous, state, what it has, gives up and shall have.
func (s *consumerScript) state() { s.c.print(&s.out, s.now) }

func (c *consumers) print(out *strings.Builder, now time.Time) {
	fmt.Fprintf(out, "= %s epoch=%d target=%d", c.state(), c.epoch, c.targetEpoch)
	if at := c.deadline(); !at.IsZero() {
		fmt.Fprintf(out, " next=+%v", at.Sub(now))
	}
	out.WriteString("\n")
	for _, m := range c.byID() {
		fmt.Fprintf(out, "  %s %d/%d %s", m.id, m.epoch, m.previous, memberStateNames[m.state])
		if m.classic != nil {
			fmt.Fprintf(out, " classic:%s", m.protocol().Name)
		}
		fmt.Fprintf(out, " [%s]", partitionsText(m.assigned))
		if m.revoking.size() > 0 {
			fmt.Fprintf(out, " gives up [%s]", partitionsText(m.revoking))
		}
		if !m.target.equal(m.assigned) {
			fmt.Fprintf(out, " shall have [%s]", partitionsText(m.target))
		}
		out.WriteString("\n")
	}
}

func (s *consumerScript) describe() {
	d := s.c.describe()
	fmt.Fprintf(&s.out, "%s %s epoch=%d assignment=%d assignor=%s\n", d.Group, d.State, d.Epoch, d.AssignmentEpoch, d.Assignor)
	for _, m := range d.Members {
		fmt.Fprintf(&s.out, "%s epoch=%d topics=%v regex=%q has [%s] shall have [%s]\n", m.MemberID, m.Epoch, m.Topics, m.Regex,
			partitionsText(assignedFrom(m.Assigned)), partitionsText(assignedFrom(m.Target)))
	}
}

// commit member=m epoch=3 version=9 [of=a:0]
func (s *consumerScript) commit(d *datadriven.TestData) string {
	r := &CommitRequest{}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "member":
			r.MemberID = strings.Join(a.Vals, "")
		case "epoch":
			n, _ := strconv.Atoi(a.Vals[0])
			r.Generation = int32(n)
		case "version":
			n, _ := strconv.Atoi(a.Vals[0])
			r.Version = int16(n)
		case "of":
			for _, t := range parsePartitions(strings.Split(strings.Join(a.Vals, ","), ",")) {
				r.Offsets = append(r.Offsets, CommitOffset{TopicID: t.TopicID, Partition: t.Partitions[0]})
			}
		}
	}
	return codeText(s.c.checkCommitOf(r))
}

func codeText(err error) string {
	if err == nil {
		return "ok"
	}
	return fmt.Sprintf("%d %v", codes[err], err)
}

func parsePartitions(vals []string) []TopicPartitions {
	all := []TopicPartitions{}
	for _, v := range vals {
		if name, p, ok := strings.Cut(v, ":"); ok {
			n, _ := strconv.Atoi(p)
			all = append(all, TopicPartitions{topicID(name), []int32{int32(n)}})
		}
	}
	return all
}

func partitionsText(a assigned) string {
	var all []string
	for _, t := range a.list() {
		for _, p := range t.Partitions {
			all = append(all, fmt.Sprintf("%s:%d", strings.TrimRight(string(t.TopicID[:]), "\x00"), p))
		}
	}
	return strings.Join(all, " ")
}
