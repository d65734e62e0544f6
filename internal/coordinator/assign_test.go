package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pgbroker/pgbroker/internal/meta"
)

func testTopic(n int) meta.UUID { return meta.UUID{15: byte(n), 14: byte(n >> 8), 0: 1} }

// drawAssignment makes a group with topics, subscriptions and an assignment of an earlier time, which may name topics,
// partitions and subscriptions that are no more.
func drawAssignment(t *rapid.T, homogeneous bool) ([]assignMember, map[meta.UUID]int32) {
	topics := rapid.IntRange(1, 6).Draw(t, "topics")
	partitions := map[meta.UUID]int32{}
	for i := range topics {
		if n := rapid.Int32Range(0, 9).Draw(t, "partitions"); n > 0 {
			partitions[testTopic(i)] = n
		}
	}
	subscription := func() []meta.UUID {
		var ids []meta.UUID
		for i := range topics {
			if rapid.Bool().Draw(t, "subscribes") {
				ids = append(ids, testTopic(i))
			}
		}
		return ids
	}
	members := make([]assignMember, rapid.IntRange(1, 8).Draw(t, "members"))
	all := subscription()
	for i := range members {
		members[i] = assignMember{id: fmt.Sprintf("m%d", i), topics: all, owned: assigned{}}
		if !homogeneous {
			members[i].topics = subscription()
		}
		if rapid.IntRange(0, 3).Draw(t, "static") == 0 {
			id := fmt.Sprintf("i%d", 9-i)
			members[i].instanceID = &id
		}
	}
	for i := range topics {
		for p := range int32(10) {
			if m := rapid.IntRange(-1, len(members)-1).Draw(t, "owner"); m >= 0 {
				members[m].owned[testTopic(i)] = append(members[m].owned[testTopic(i)], p)
			}
		}
	}
	return members, partitions
}

// checkAssignment: every partition that has a subscriber is with exactly one, lists are sorted and never empty.
func checkAssignment(t interface{ Fatalf(string, ...any) }, members []assignMember, partitions map[meta.UUID]int32, got []assigned) {
	if len(got) != len(members) {
		t.Fatalf("%d assignments for %d members", len(got), len(members))
	}
	owners := map[TopicPartition]int{}
	for i, a := range got {
		for topic, list := range a {
			if !slices.Contains(members[i].topics, topic) {
				t.Fatalf("%s has topic %v, to which it does not subscribe", members[i].id, topic)
			}
			if len(list) == 0 || !slices.IsSorted(list) {
				t.Fatalf("list %v", list)
			}
			for _, p := range list {
				if p < 0 || p >= partitions[topic] {
					t.Fatalf("partition %d of %d", p, partitions[topic])
				}
				owners[TopicPartition{topic, p}]++
			}
		}
	}
	for _, topic := range subscribedTopics(members, partitions) {
		for p := range partitions[topic] {
			if n := owners[TopicPartition{topic, p}]; n != 1 {
				t.Fatalf("partition %d of %v has %d owners", p, topic, n)
			}
		}
	}
}

// checkBalance: no move of one partition makes two members' loads more equal.
func checkBalance(t *rapid.T, members []assignMember, got []assigned) {
	for i := range got {
		for topic := range got[i] {
			for j := range got {
				if slices.Contains(members[j].topics, topic) && got[i].size() > got[j].size()+1 {
					t.Fatalf("%s has %d and %s only %d, though it may have a partition of %v", members[i].id, got[i].size(), members[j].id, got[j].size(), topic)
				}
			}
		}
	}
}

// again assigns once more, from the result.
func again(assign assignor, members []assignMember, partitions map[meta.UUID]int32, got []assigned) []assigned {
	next := slices.Clone(members)
	for i := range next {
		next[i].owned = got[i]
	}
	return assign(next, partitions)
}

func sameAssignment(a, b []assigned) bool { return slices.EqualFunc(a, b, assigned.equal) }

func copyOwned(members []assignMember) []assigned {
	all := make([]assigned, len(members))
	for i, m := range members {
		all[i] = maps.Clone(m.owned)
		for t, list := range all[i] {
			all[i][t] = slices.Clone(list)
		}
	}
	return all
}

func TestAssignorsProperties(t *testing.T) {
	for _, name := range []string{assignorRange, assignorUniform} {
		for _, homogeneous := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s homogeneous=%t", name, homogeneous), rapid.MakeCheck(func(t *rapid.T) {
				assign, _ := assignorNamed(name)
				members, partitions := drawAssignment(t, homogeneous)
				before := copyOwned(members)
				got := assign(members, partitions)
				checkAssignment(t, members, partitions, got)
				for i := range members {
					if !before[i].equal(members[i].owned) {
						t.Fatalf("the assignor changed what %s owned", members[i].id)
					}
				}
				if !sameAssignment(got, assign(members, partitions)) {
					t.Fatalf("two answers to one question")
				}
				if !sameAssignment(got, again(assign, members, partitions, got)) {
					t.Fatalf("a settled assignment moved")
				}
				if name == assignorUniform {
					checkBalance(t, members, got)
				}
			}))
		}
	}
}

// TestUniformMovesNoMoreThanItMust: with equal subscriptions the number of partitions that a member keeps is the best
// that any balanced assignment can do.
func TestUniformMovesNoMoreThanItMust(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members, partitions := drawAssignment(t, true)
		valid := newDistribution(members, partitions)
		loads := slices.Clone(valid.load)
		total := 0
		for _, topic := range valid.topics {
			total += int(partitions[topic])
		}
		least, extra := total/len(members), total%len(members)
		best := 0
		for _, n := range loads {
			best += min(n, least)
			if n > least && extra > 0 {
				best++
				extra--
			}
		}
		kept := 0
		for i, a := range assignUniform(members, partitions) {
			kept += a.and(members[i].owned).size()
		}
		if kept != best {
			t.Fatalf("%d partitions stay, %d could", kept, best)
		}
	})
}

func TestUniformSpreadsOverWhoeverMayHave(t *testing.T) {
	a, b := testTopic(1), testTopic(2)
	members := []assignMember{{id: "m1", topics: []meta.UUID{a}}, {id: "m2", topics: []meta.UUID{a, b}}, {id: "m3", topics: []meta.UUID{b}}}
	got := assignUniform(members, map[meta.UUID]int32{a: 6, b: 3})
	for i, want := range []int{3, 3, 3} {
		if got[i].size() != want {
			t.Errorf("%s has %v", members[i].id, got[i])
		}
	}
}

func TestUniformOneMoreMember(t *testing.T) {
	a := testTopic(1)
	first := assignMember{id: "m1", topics: []meta.UUID{a}}
	got := assignUniform([]assignMember{first}, map[meta.UUID]int32{a: 4})
	first.owned = got[0]
	got = assignUniform([]assignMember{first, {id: "m2", topics: []meta.UUID{a}}}, map[meta.UUID]int32{a: 4})
	if fmt.Sprint(got[0][a], got[1][a]) != "[0 1] [2 3]" {
		t.Errorf("got %v %v", got[0][a], got[1][a])
	}
}

// TestRangeAsKafka has the examples of the documentation of Kafka's RangeAssignor.
func TestRangeAsKafka(t *testing.T) {
	a, b := testTopic(1), testTopic(2)
	both := []meta.UUID{a, b}
	i0, i1 := "I0", "I1"
	members := []assignMember{{id: "M0", topics: both}, {id: "M1", topics: both}}
	static := []assignMember{{id: "M2", topics: both, instanceID: &i1}, {id: "M3", topics: both, instanceID: &i0}}
	mixed := []assignMember{{id: "M0", topics: both}, {id: "M1", topics: []meta.UUID{b}, instanceID: &i1}}
	three := map[meta.UUID]int32{a: 3, b: 3}
	for _, c := range []struct {
		name    string
		members []assignMember
		want    string
	}{
		{"two members", members, "[0 1][0 1] [2][2]"},
		{"static members by instance id", static, "[2][2] [0 1][0 1]"},
		{"static first, subscriptions differ", mixed, "[0 1 2][2] [][0 1]"},
	} {
		got := assignRange(c.members, three)
		text := fmt.Sprintf("%v%v %v%v", got[0][a], got[0][b], got[1][a], got[1][b])
		if text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

func TestSetsOfPartitions(t *testing.T) {
	a, b := testTopic(1), testTopic(2)
	x, y := assigned{a: {0, 1, 2}, b: {5}}, assigned{a: {1, 3}}
	for _, c := range []struct {
		name      string
		got, want assigned
	}{
		{"and", x.and(y), assigned{a: {1}}},
		{"minus", x.minus(y), assigned{a: {0, 2}, b: {5}}},
		{"or", x.or(y), assigned{a: {0, 1, 2, 3}, b: {5}}},
		{"minus all", y.minus(x.or(y)), assigned{}},
	} {
		if !c.got.equal(c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	if !x.overlaps(y) || x.overlaps(assigned{b: {4, 6}}) || x.overlaps(nil) {
		t.Error("overlaps")
	}
}

// bigGroup has 1,000 members and 10,000 partitions in 100 topics, of which each member of a mixed group wants half.
func bigGroup(homogeneous bool) ([]assignMember, map[meta.UUID]int32) {
	partitions := map[meta.UUID]int32{}
	var all []meta.UUID
	for i := range 100 {
		partitions[testTopic(i)] = 100
		all = append(all, testTopic(i))
	}
	members := make([]assignMember, 1000)
	for i := range members {
		members[i] = assignMember{id: fmt.Sprintf("m%04d", i), topics: all}
		if !homogeneous {
			members[i].topics = all[i%50 : i%50+50]
		}
	}
	return members, partitions
}

// BenchmarkAssign: one member joins a settled group of 999 with 10,000 partitions.
func BenchmarkAssign(b *testing.B) {
	for _, name := range []string{assignorRange, assignorUniform} {
		for _, homogeneous := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/homogeneous=%t", name, homogeneous), func(b *testing.B) {
				assign, _ := assignorNamed(name)
				members, partitions := bigGroup(homogeneous)
				for i, a := range assign(members[1:], partitions) {
					members[i+1].owned = a
				}
				moved := 0
				for b.Loop() {
					got := assign(members, partitions)
					moved = 0
					for i := range got {
						moved += got[i].minus(members[i].owned).size()
					}
				}
				b.ReportMetric(float64(moved), "moved")
			})
		}
	}
}
