package coordinator

import (
	"fmt"
	"strings"

	"github.com/pgbroker/pgbroker/internal/meta"
)

func (s *script) print(r reply) {
	fmt.Fprintf(&s.out, "-> %s: ", s.tokens[r.to])
	switch b := r.body.(type) {
	case JoinReply:
		if b.Err != nil {
			fmt.Fprintf(&s.out, "join %s member=%s gen=%d\n", word(b.Err), b.MemberID, b.Generation)
			return
		}
		fmt.Fprintf(&s.out, "join ok member=%s gen=%d %s/%s leader=%s", b.MemberID, b.Generation, b.ProtocolType, b.Protocol, b.Leader)
		if b.SkipAssignment {
			s.out.WriteString(" skip-assignment")
		}
		for _, m := range b.Members {
			fmt.Fprintf(&s.out, " [%s%s %s]", m.MemberID, instance(m.InstanceID), m.Metadata)
		}
		s.out.WriteString("\n")
	case SyncReply:
		if b.Err != nil {
			fmt.Fprintf(&s.out, "sync %s\n", word(b.Err))
			return
		}
		fmt.Fprintf(&s.out, "sync ok %s/%s assignment=%q\n", b.ProtocolType, b.Protocol, b.Assignment)
	case ConsumerHeartbeatReply:
		fmt.Fprintf(&s.out, "beat ok member=%s epoch=%d", b.MemberID, b.MemberEpoch)
		if b.Assignment != nil {
			fmt.Fprintf(&s.out, " may have [%s]", partitionsText(assignedFrom(b.Assignment)))
		}
		s.out.WriteString("\n")
	case LeaveReply:
		var results []string
		for _, err := range b.Members {
			results = append(results, word(err))
		}
		fmt.Fprintf(&s.out, "leave %s\n", strings.Join(results, " "))
	}
}

func instance(id *string) string {
	if id == nil {
		return ""
	}
	return "/" + *id
}

func (s *script) showChange(c *change) {
	for _, g := range c.deletedGroups {
		fmt.Fprintf(&s.out, "delete group %s\n", g)
	}
	for _, k := range c.deletedMembers {
		fmt.Fprintf(&s.out, "delete member %s\n", k.member)
	}
	for _, k := range c.deletedOffsets {
		fmt.Fprintf(&s.out, "delete offset %s\n", show(k.TopicPartition))
	}
	for _, g := range c.groups {
		s.showGroup("store ", g)
	}
	for _, m := range c.members {
		s.showMember("store ", m)
	}
	for _, o := range c.offsets {
		s.showOffset("store ", o)
	}
}

func (s *script) showGroup(verb string, g meta.GroupRow) {
	if g.Kind == kindConsumer {
		verb += "consumer "
	}
	fmt.Fprintf(&s.out, "%sgroup %s gen=%d type=%q protocol=%q leader=%q", verb, g.Group, g.Generation, g.ProtocolType, g.Protocol, g.Leader)
	if !g.EmptySince.IsZero() {
		fmt.Fprintf(&s.out, " empty-since=%s", g.EmptySince.Sub(s.start))
	}
	s.out.WriteString("\n")
}

func (s *script) showMember(verb string, m meta.MemberRow) {
	if c := m.Consumer; c != nil {
		kind := "consumer"
		if len(m.Protocols) > 0 {
			kind = "classic"
		}
		fmt.Fprintf(&s.out, "%smember %s%s session=%s %s epoch=%d/%d %s [%s]\n", verb, m.MemberID, instance(m.InstanceID), m.SessionTimeout, kind,
			c.Epoch, c.PreviousEpoch, c.State, partitionsText(assignedFromStored(c.Assigned)))
		return
	}
	fmt.Fprintf(&s.out, "%smember %s%s session=%s assignment=%q\n", verb, m.MemberID, instance(m.InstanceID), m.SessionTimeout, m.Assignment)
}

func (s *script) showOffset(verb string, o meta.OffsetRow) {
	fmt.Fprintf(&s.out, "%soffset %s=%d epoch=%d metadata=%q", verb, show(TopicPartition{o.TopicID, o.Partition}), o.Offset, o.LeaderEpoch, o.Metadata)
	if !o.ExpiresAt.IsZero() {
		fmt.Fprintf(&s.out, " expires=%s", o.ExpiresAt.Sub(s.start))
	}
	s.out.WriteString("\n")
}

func (s *script) showTables() {
	for _, k := range sortedKeys(s.rows.groups, func(k string) string { return k }) {
		s.showGroup("", s.rows.groups[k])
	}
	for _, k := range sortedKeys(s.rows.members, func(k memberKey) string { return k.member }) {
		s.showMember("", s.rows.members[k])
	}
	for _, k := range sortedKeys(s.rows.offsets, func(k offsetKey) string { return show(k.TopicPartition) }) {
		s.showOffset("", s.rows.offsets[k])
	}
}

func (s *script) showState() {
	if s.g == nil {
		s.out.WriteString("= no group\n")
		return
	}
	if s.g.consumers != nil {
		s.g.consumers.print(&s.out, s.now)
		return
	}
	fmt.Fprintf(&s.out, "= %s gen=%d", s.g.state, s.g.generation)
	for _, m := range s.g.byJoining() {
		fmt.Fprintf(&s.out, " %s", m.id)
		if m.join != 0 {
			s.out.WriteString("(joining)")
		}
		if m.sync != 0 {
			s.out.WriteString("(syncing)")
		}
	}
	if n := len(s.g.pending); n > 0 {
		fmt.Fprintf(&s.out, " pending=%d", n)
	}
	if s.held != nil {
		s.out.WriteString(" (being stored)")
	}
	if at := s.g.deadline(); !at.IsZero() {
		fmt.Fprintf(&s.out, " next=+%s", at.Sub(s.now))
	}
	s.out.WriteString("\n")
}

func (s *script) describe() {
	d := s.g.describe("g")
	fmt.Fprintf(&s.out, "%s %s %s/%s gen=%d leader=%s\n", word(d.Err), d.State, d.ProtocolType, d.Protocol, d.Generation, d.Leader)
	for _, m := range d.Members {
		fmt.Fprintf(&s.out, "%s%s %s %s metadata=%q assignment=%q\n", m.MemberID, instance(m.InstanceID), m.ClientID, m.ClientHost, m.Metadata, m.Assignment)
	}
}
