package coordinator

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cockroachdb/datadriven"
)

// testProtocol is what test members put into their metadata and assignments: "t1+t2|t1.0+t2.1" subscribes to two topics and
// owns two partitions, "t1.0+t2.1" assigns them. "?" does not parse.
var testProtocol = ConsumerProtocol{
	Subscription: func(metadata []byte) (Subscription, bool) {
		topics, owned, _ := strings.Cut(string(metadata), "|")
		list, ok := readPartitions(owned)
		return Subscription{Topics: words(topics), Owned: list}, ok && topics != "?"
	},
	Assignment: func(assignment []byte) ([]NamedPartitions, bool) { return readPartitions(string(assignment)) },
	Assign:     func(_ []byte, list []NamedPartitions) []byte { return []byte(writePartitions(list)) },
}

func words(s string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return c == '+' || c == ' ' })
}

func readPartitions(text string) ([]NamedPartitions, bool) {
	var list []NamedPartitions
	for _, w := range words(text) {
		topic, number, ok := strings.Cut(w, ".")
		n, err := strconv.Atoi(number)
		if !ok || err != nil {
			return nil, false
		}
		list = append(list, NamedPartitions{topic, []int32{int32(n)}})
	}
	return list, true
}

func writePartitions(list []NamedPartitions) string {
	var all []string
	for _, t := range list {
		for _, p := range t.Partitions {
			all = append(all, fmt.Sprintf("%s.%d", t.Topic, p))
		}
	}
	return strings.Join(all, "+")
}

// beat is a ConsumerGroupHeartbeat in a script of a group that also has classic members; see parseBeat.
func (s *script) beat(d *datadriven.TestData, out *outcome) {
	r := parseBeat(d)
	if err := r.check(s.cfg.consumer.assignors); err != nil {
		fmt.Fprintf(&s.out, "%s\n", word(err))
		return
	}
	if s.g == nil {
		s.g = newGroup("g", s.cfg)
	}
	next := s.g.clone()
	reply := next.consumerHeartbeat(s.now, s.view, "new", r, out)
	if reply.Err != nil {
		fmt.Fprintf(&s.out, "%s\n", word(reply.Err))
		return
	}
	out.reply(s.token("beat"), reply)
	s.settle(next, *out)
}
