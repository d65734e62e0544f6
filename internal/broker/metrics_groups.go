package broker

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/pgbroker/pgbroker/internal/coordinator"
)

const (
	groupRefresh    = 5 * time.Second  // age of the committed offsets that a scrape sees
	groupWatched    = 5 * time.Minute  // no refresh when nobody has scraped for so long
	groupStale      = 3 * groupRefresh // an older picture is not shown
	maxGroupOffsets = 10_000           // rows of group and partition that get series
	maxGroupSeries  = 2_000            // groups that get series; clients make up group ids, and their groups stay for a week
)

// Series of groups. The first block has kafka_exporter's names, the second kafka-lag-exporter's, the third Kafka's.
var (
	seriesGroupOffset    = gauge("kafka_consumergroup_current_offset", "Committed offset.", "consumergroup", "topic", "partition")
	seriesGroupLag       = gauge("kafka_consumergroup_lag", "High watermark minus committed offset.", "consumergroup", "topic", "partition")
	seriesGroupOffsetSum = gauge("kafka_consumergroup_current_offset_sum", "Committed offsets of a topic, added up.", "consumergroup", "topic")
	seriesGroupLagSum    = gauge("kafka_consumergroup_lag_sum", "Lag of a topic.", "consumergroup", "topic")
	seriesGroupMembers   = gauge("kafka_consumergroup_members", "Members.", "consumergroup")

	seriesLagOffset   = gauge("kafka_consumergroup_group_offset", "Committed offset.", "cluster_name", "group", "topic", "partition")
	seriesLagLag      = gauge("kafka_consumergroup_group_lag", "High watermark minus committed offset.", "cluster_name", "group", "topic", "partition")
	seriesLagTopicSum = gauge("kafka_consumergroup_group_topic_sum_lag", "Lag of a topic.", "cluster_name", "group", "topic")
	seriesLagSum      = gauge("kafka_consumergroup_group_sum_lag", "Lag of the group.", "cluster_name", "group")
	seriesLagMax      = gauge("kafka_consumergroup_group_max_lag", "Largest lag of a partition.", "cluster_name", "group")
	seriesLagState    = gauge("kafka_consumergroup_group_state", "0 unknown, 1 PreparingRebalance, 2 CompletingRebalance, 3 Stable, 4 Dead, 5 Empty.", "cluster_name", "group")

	seriesGroupCount   = gauge("kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups.")
	seriesGroups       = gauge("pgbroker_groups", "Groups by state.", "state")
	seriesStateMembers = gauge("pgbroker_group_members", "Members of all groups in a state.", "state")
	seriesStateLargest = gauge("pgbroker_group_members_max", "Members of the largest group in a state.", "state")
	seriesGroupsOver   = gauge("pgbroker_metrics_dropped_groups", "Groups without series, because there are too many.")
	seriesGroupDropped = gauge("pgbroker_metrics_dropped_group_offsets", "Committed offsets without series, because there are too many.")
)

// groupStates numbers Kafka's states as kafka-lag-exporter does.
var groupStates = map[string]float64{"PreparingRebalance": 1, "CompletingRebalance": 2, "Stable": 3, "Dead": 4, "Empty": 5}

// stateNames are all states that a group can have, of both protocols.
var stateNames = []string{"Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable", "Dead"}

// groupView is one group as it was a few seconds ago.
type groupView struct {
	group, state string
	members      int
	offsets      []coordinator.CommitOffset // by topic id and partition
}

// groupPicture is all groups at one time.
type groupPicture struct {
	taken time.Time
	views []groupView
	txns  coordinator.TxnCounts
}

// groupReader is what the metrics ask of the coordinator.
type groupReader interface {
	List(done func([]coordinator.GroupListing, error))
	Describe(groups []string, done func([]coordinator.GroupDescription))
	FetchOffsets(r coordinator.FetchOffsetsRequest, done func(coordinator.FetchOffsetsReply))
	txnReader
}

// watchGroups keeps a picture of the groups while somebody scrapes, until ctx ends. A scrape itself asks nobody.
func (m *metrics) watchGroups(ctx context.Context, groups groupReader) {
	m.scraped.Store(time.Now().UnixNano()) // so that the first scrape sees groups
	tick := time.NewTicker(groupRefresh)
	defer tick.Stop()
	for {
		if time.Since(time.Unix(0, m.scraped.Load())) < groupWatched {
			views, ok := readGroups(ctx, groups)
			txns, also := readTxns(ctx, groups)
			if ok && also {
				m.groups.Store(&groupPicture{time.Now(), views, txns})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// readGroups asks the coordinator's memory; ok is false while the coordinator cannot answer.
func readGroups(ctx context.Context, groups groupReader) (views []groupView, ok bool) {
	listed, ok := await(ctx, func(done func([]coordinator.GroupListing)) {
		groups.List(func(l []coordinator.GroupListing, err error) {
			if err != nil {
				l = nil
			}
			done(l)
		})
	})
	if !ok {
		return nil, false
	}
	for _, l := range listed {
		described, ok := await(ctx, func(done func([]coordinator.GroupDescription)) { groups.Describe([]string{l.Group}, done) })
		if !ok {
			return nil, false
		}
		committed, ok := await(ctx, func(done func(coordinator.FetchOffsetsReply)) {
			groups.FetchOffsets(coordinator.FetchOffsetsRequest{Group: l.Group}, done)
		})
		if !ok {
			return nil, false
		}
		views = append(views, groupView{group: l.Group, state: l.State, members: len(described[0].Members), offsets: committed.Offsets})
	}
	// Those with members first: they are the last to go without series when there are too many.
	slices.SortStableFunc(views, func(a, b groupView) int { return cmp.Compare(min(b.members, 1), min(a.members, 1)) })
	return views, true
}

// await is the value that ask hands over, or ok=false when ctx ends first.
func await[T any](ctx context.Context, ask func(done func(T))) (value T, ok bool) {
	answer := make(chan T, 1)
	ask(func(v T) { answer <- v })
	select {
	case value = <-answer:
		return value, true
	case <-ctx.Done():
		return value, false
	}
}

// collectGroups compares the committed offsets with the high watermarks of now.
func (m *metrics) collectGroups(out sink, cat *catalog) {
	m.scraped.Store(time.Now().UnixNano())
	picture := m.groups.Load()
	if picture == nil || time.Since(picture.taken) > groupStale {
		return
	}
	out.put(seriesGroupCount, float64(len(picture.views)))
	collectStates(out, picture.views)
	collectTxns(out, picture.txns, time.Now())
	left, dropped := maxGroupOffsets, 0
	for i, v := range picture.views {
		if i >= maxGroupSeries {
			dropped += len(v.offsets)
			continue
		}
		out.put(seriesGroupMembers, float64(v.members), v.group)
		out.put(seriesLagState, groupStates[v.state], cat.cluster.ID, v.group)
		shown := v.offsets[:min(left, len(v.offsets))]
		left -= len(shown)
		dropped += len(v.offsets) - len(shown)
		v.offsets = shown
		v.collect(out, cat)
	}
	out.put(seriesGroupDropped, float64(dropped))
	out.put(seriesGroupsOver, float64(max(len(picture.views)-maxGroupSeries, 0)))
}

// collectStates sums the groups up by state; every state has series, so that none comes and goes.
func collectStates(out sink, views []groupView) {
	groups, members, largest := map[string]int{}, map[string]int{}, map[string]int{}
	for _, v := range views {
		groups[v.state]++
		members[v.state] += v.members
		largest[v.state] = max(largest[v.state], v.members)
	}
	for _, state := range stateNames {
		out.put(seriesGroups, float64(groups[state]), state)
		out.put(seriesStateMembers, float64(members[state]), state)
		out.put(seriesStateLargest, float64(largest[state]), state)
	}
}

// collect sends the offsets and lags of one group; topics lie side by side in its offsets.
func (v groupView) collect(out sink, cat *catalog) {
	var lag, most float64
	for len(v.offsets) > 0 {
		n := 1
		for n < len(v.offsets) && v.offsets[n].TopicID == v.offsets[0].TopicID {
			n++
		}
		if t, ok := cat.topicByID(v.offsets[0].TopicID); ok {
			sum, largest := v.collectTopic(out, cat.cluster.ID, t, v.offsets[:n])
			lag, most = lag+sum, max(most, largest)
		}
		v.offsets = v.offsets[n:]
	}
	out.put(seriesLagSum, lag, cat.cluster.ID, v.group)
	out.put(seriesLagMax, most, cat.cluster.ID, v.group)
}

func (v groupView) collectTopic(out sink, cluster string, t *topic, offsets []coordinator.CommitOffset) (sum, most float64) {
	var position float64
	for _, o := range offsets {
		p, ok := t.partition(o.Partition)
		if !ok {
			continue
		}
		lead, err := p.leader()
		if err != nil {
			continue
		}
		partition, offset := strconv.Itoa(int(o.Partition)), float64(o.Offset)
		lag := float64(max(lead.log.Offsets().High-o.Offset, 0))
		sum, most, position = sum+lag, max(most, lag), position+offset
		out.put(seriesGroupOffset, offset, v.group, t.name, partition)
		out.put(seriesGroupLag, lag, v.group, t.name, partition)
		out.put(seriesLagOffset, offset, cluster, v.group, t.name, partition)
		out.put(seriesLagLag, lag, cluster, v.group, t.name, partition)
	}
	out.put(seriesGroupOffsetSum, position, v.group, t.name)
	out.put(seriesGroupLagSum, sum, v.group, t.name)
	out.put(seriesLagTopicSum, sum, cluster, v.group, t.name)
	return sum, most
}
