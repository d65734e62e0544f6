package logtool

import (
	"slices"
	"strings"
	"testing"
)

// claimed is a database that agrees with newFolder: producer 8 aborted from 10 and then committed from 20.
func claimed() *Claims {
	id := topicID{1, 2, 3}
	return &Claims{
		Topics:  []ClaimedTopic{{Name: "orders", ID: id, Partitions: []ClaimedPartition{{Leader: 1, Term: 3}}}},
		Offsets: []CommittedOffset{{Group: "g", TopicID: id, Offset: 31}},
		Transactions: []ClaimedTransaction{{ID: "t", ProducerID: 8, Decided: "commit", DecidedProducerID: 8, MarkerEpoch: 0,
			Partitions: []ClaimedEnd{{TopicID: id, First: 20}}}},
	}
}

// TestVerifyWithDatabase: each way in which database and disk can disagree is one finding.
func TestVerifyWithDatabase(t *testing.T) {
	for name, c := range map[string]struct {
		change func(c *Claims, f *folder)
		want   []string
	}{
		"agrees":            {func(*Claims, *folder) {}, nil},
		"older transaction": {func(c *Claims, f *folder) { c.Transactions[0].Partitions[0].First = 10 }, nil},
		"offset behind the end": {func(c *Claims, f *folder) { c.Offsets[0].Offset = 32 },
			[]string{`ERROR postgres group "g" has committed offset 32 of orders-0, whose log ends at 31`}},
		"offset of no topic": {func(c *Claims, f *folder) { c.Offsets[0].TopicID = [16]byte{9} }, []string{`WARNING postgres group "g" has committed offset 31 of topic id`}},
		"topic without directory": {func(c *Claims, f *folder) {
			c.Topics = append(c.Topics, ClaimedTopic{Name: "new", ID: [16]byte{7}, Partitions: []ClaimedPartition{{Leader: 1, Term: 1}, {Leader: 2, Term: 1}}})
		}, []string{"WARNING postgres new-0 (topic id BwAAAAAAAAAAAAAAAAAAAA) has no directory yet"}},
		"directory without topic": {func(c *Claims, f *folder) { c.Topics, c.Offsets = nil, nil }, []string{"WARNING orders-0 topic id AQIDAAAAAAAAAAAAAAAAAA partition 0 is not in Postgres"}},
		"another name":            {func(c *Claims, f *folder) { c.Topics[0].Name = "payments" }, []string{"ERROR orders-0 topic id AQIDAAAAAAAAAAAAAAAAAA is that of topic payments"}},
		"older database": {func(c *Claims, f *folder) { c.Topics[0].Partitions[0].Term = 2 },
			[]string{"ERROR pgbroker-partition-state orders-0 was led under leader epoch 3 here, Postgres has 2", "ERROR orders-0 has batches of leader epoch 3, Postgres has 2"}},
		"marker says something else": {func(c *Claims, f *folder) { c.Transactions[0].Decided = "abort" }, []string{"ERROR orders-0 transactional id \"t\": the abort of producer id 8 from offset 20 has a marker at offset 25 that says commit"}},
		"marker without decision": {func(c *Claims, f *folder) { c.Transactions[0].MarkerEpoch = -1; c.Transactions[0].Partitions = nil },
			[]string{"ERROR orders-0 the commit marker of producer id 8 (transactional id \"t\"), epoch 0, at offset 25 has no decision"}},
		"decision of what is gone": {func(c *Claims, f *folder) { c.Transactions[0].Partitions[0].First = 27 },
			[]string{"ERROR orders-0 transactional id \"t\": the commit of producer id 8 from offset 27 is in Postgres, but the log ends at 31"}},
		"no marker yet": {func(c *Claims, f *folder) { f.segments[1] = f.segments[1][:1]; f.unclean(20) },
			[]string{`WARNING orders-0 transactional id "t": the commit of producer id 8 from offset 20 has no marker yet`, `group "g" has committed offset 31`}},
		"nobody's transaction": {func(c *Claims, f *folder) {
			c.Transactions = nil
			c.Offsets = nil
			f.segments[1] = f.segments[1][:1]
			f.unclean(20)
		}, []string{"ERROR orders-0 the transaction of producer id 8 from offset 20 is open, and no transactional id owns it"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, claims := newFolder(), claimed()
			c.change(claims, f)
			disk := f.disk(t)
			base, _ := findings(t, disk, VerifyOptions{})
			list, _ := findings(t, disk, VerifyOptions{Claims: claims})
			list = slices.DeleteFunc(list, func(f string) bool { return slices.Contains(base, f) })
			if len(list) != len(c.want) {
				t.Fatalf("%q", list)
			}
			for _, want := range c.want {
				if !slices.ContainsFunc(list, func(f string) bool { return strings.Contains(f, want) }) {
					t.Errorf("no %q in %q", want, list)
				}
			}
		})
	}
	disk := newFolder().disk(t)
	if _, err := Verify(t.Context(), VerifyOptions{FS: disk, Dir: "data/orders-0", Claims: claimed()}, func(Finding) error { return nil }); err == nil {
		t.Error("one partition was compared with the database")
	}
}
