//go:build linux

package many

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sweep is what a web console asks for to draw its pages: all topics, their properties, offsets and sizes, all groups and
// their lags. Each answer is checked for being whole.
type sweep struct {
	client     *kgo.Client
	topics     []string
	partitions int // of each topic
	groups     []string
	took       map[string]time.Duration // the longest of each step over all sweeps

	names map[[16]byte]string        // by topic id
	ends  map[string]map[int32]int64 // by topic and partition
}

// sweepLimit is what each answer may take.
const sweepLimit = 2 * time.Second

func (s *sweep) all(ctx context.Context) error {
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"DescribeCluster", s.describeCluster},
		{"Metadata of all topics", s.metadata},
		{"DescribeConfigs of all topics", s.topicConfigs},
		{"DescribeConfigs of all brokers", s.brokerConfigs},
		{"DescribeLogDirs", s.logDirs},
		{"DescribeAcls", s.acls},
		{"ListOffsets of all partitions", s.offsets},
		{"DescribeTopicPartitions, all pages", s.pages},
		{"ListGroups", s.listGroups},
		{"DescribeGroups of all groups", s.describeGroups},
		{"OffsetFetch of all groups", s.lags},
	}
	for _, step := range steps {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		took := time.Since(began)
		s.took[step.name] = max(s.took[step.name], took)
		if took > sweepLimit {
			return fmt.Errorf("%s took %s", step.name, took)
		}
	}
	return nil
}

// ask sends a request to the one broker, in the newest version both know.
func ask[T kmsg.Response](ctx context.Context, s *sweep, req kmsg.Request) (T, error) {
	resp, err := s.client.Broker(1).Request(ctx, req)
	if err != nil {
		var none T
		return none, err
	}
	return resp.(T), nil
}

func (s *sweep) describeCluster(ctx context.Context) error {
	resp, err := ask[*kmsg.DescribeClusterResponse](ctx, s, kmsg.NewPtrDescribeClusterRequest())
	if err != nil {
		return err
	}
	if resp.ErrorCode != 0 || len(resp.Brokers) != 1 {
		return fmt.Errorf("code %d, %d brokers", resp.ErrorCode, len(resp.Brokers))
	}
	return nil
}

func (s *sweep) metadata(ctx context.Context) error {
	resp, err := ask[*kmsg.MetadataResponse](ctx, s, kmsg.NewPtrMetadataRequest())
	if err != nil {
		return err
	}
	names, count := map[[16]byte]string{}, 0
	for _, t := range resp.Topics {
		if t.ErrorCode != 0 {
			return fmt.Errorf("%s: code %d", *t.Topic, t.ErrorCode)
		}
		names[t.TopicID] = *t.Topic
		count += len(t.Partitions)
	}
	s.names = names
	return s.whole(len(resp.Topics), count)
}

// whole compares what was answered with what there is.
func (s *sweep) whole(topics, partitions int) error {
	if topics != len(s.topics) || partitions != len(s.topics)*s.partitions {
		return fmt.Errorf("%d topics with %d partitions, not %d with %d", topics, partitions, len(s.topics), len(s.topics)*s.partitions)
	}
	return nil
}

func (s *sweep) topicConfigs(ctx context.Context) error {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = true, true
	for _, t := range s.topics {
		req.Resources = append(req.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: t})
	}
	return s.configs(ctx, req)
}

func (s *sweep) brokerConfigs(ctx context.Context) error {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = true, true
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1"}}
	return s.configs(ctx, req)
}

func (s *sweep) configs(ctx context.Context, req *kmsg.DescribeConfigsRequest) error {
	resp, err := ask[*kmsg.DescribeConfigsResponse](ctx, s, req)
	if err != nil {
		return err
	}
	if len(resp.Resources) != len(req.Resources) {
		return fmt.Errorf("%d of %d resources", len(resp.Resources), len(req.Resources))
	}
	for _, r := range resp.Resources {
		if r.ErrorCode != 0 || len(r.Configs) < 20 {
			return fmt.Errorf("%s: code %d, %d properties", r.ResourceName, r.ErrorCode, len(r.Configs))
		}
	}
	return nil
}

func (s *sweep) logDirs(ctx context.Context) error {
	resp, err := ask[*kmsg.DescribeLogDirsResponse](ctx, s, kmsg.NewPtrDescribeLogDirsRequest())
	if err != nil {
		return err
	}
	if len(resp.Dirs) != 1 || resp.Dirs[0].ErrorCode != 0 {
		return fmt.Errorf("%d directories", len(resp.Dirs))
	}
	count := 0
	for _, t := range resp.Dirs[0].Topics {
		count += len(t.Partitions)
	}
	return s.whole(len(resp.Dirs[0].Topics), count)
}

// acls are off, and saying so ends nothing.
func (s *sweep) acls(ctx context.Context) error {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	resp, err := ask[*kmsg.DescribeACLsResponse](ctx, s, req)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); !errors.Is(err, kerr.SecurityDisabled) {
		return fmt.Errorf("code %d", resp.ErrorCode)
	}
	return nil
}

func (s *sweep) offsets(ctx context.Context) error {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	for _, name := range s.topics {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = name
		for p := range s.partitions {
			part := kmsg.NewListOffsetsRequestTopicPartition()
			part.Partition, part.Timestamp = int32(p), -1
			t.Partitions = append(t.Partitions, part)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := ask[*kmsg.ListOffsetsResponse](ctx, s, req)
	if err != nil {
		return err
	}
	ends, count := map[string]map[int32]int64{}, 0
	for _, t := range resp.Topics {
		ends[t.Topic] = map[int32]int64{}
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return fmt.Errorf("%s-%d: code %d", t.Topic, p.Partition, p.ErrorCode)
			}
			ends[t.Topic][p.Partition] = p.Offset
			count++
		}
	}
	s.ends = ends
	return s.whole(len(resp.Topics), count)
}

// pages follows the cursor of DescribeTopicPartitions. Each page is an answer of its own; all of them keep to the limit.
func (s *sweep) pages(ctx context.Context) error {
	const perPage = 250
	seen, pages := map[string]bool{}, 0
	var cursor *kmsg.DescribeTopicPartitionsRequestCursor
	for {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit, req.Cursor = perPage, cursor
		resp, err := ask[*kmsg.DescribeTopicPartitionsResponse](ctx, s, req)
		if err != nil {
			return err
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				key := *t.Topic + "-" + strconv.Itoa(int(p.Partition))
				if p.ErrorCode != 0 || p.LeaderID != 1 || seen[key] {
					return fmt.Errorf("%s: code %d, leader %d, seen before: %v", key, p.ErrorCode, p.LeaderID, seen[key])
				}
				seen[key] = true
			}
		}
		pages++
		if resp.NextCursor == nil {
			break
		}
		next := kmsg.NewDescribeTopicPartitionsRequestCursor()
		next.Topic, next.Partition = resp.NextCursor.Topic, resp.NextCursor.Partition
		cursor = &next
	}
	if want := len(s.topics) * s.partitions; len(seen) != want || pages != (want+perPage-1)/perPage {
		return fmt.Errorf("%d partitions of %d in %d pages", len(seen), want, pages)
	}
	return nil
}

func (s *sweep) listGroups(ctx context.Context) error {
	resp, err := ask[*kmsg.ListGroupsResponse](ctx, s, kmsg.NewPtrListGroupsRequest())
	if err != nil {
		return err
	}
	if resp.ErrorCode != 0 || len(resp.Groups) != len(s.groups) {
		return fmt.Errorf("code %d, %d groups of %d", resp.ErrorCode, len(resp.Groups), len(s.groups))
	}
	return nil
}

func (s *sweep) describeGroups(ctx context.Context) error {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = s.groups
	resp, err := ask[*kmsg.DescribeGroupsResponse](ctx, s, req)
	if err != nil {
		return err
	}
	if len(resp.Groups) != len(s.groups) {
		return fmt.Errorf("%d groups of %d", len(resp.Groups), len(s.groups))
	}
	for _, g := range resp.Groups {
		if g.ErrorCode != 0 || g.State != "Empty" && g.State != "Stable" {
			return fmt.Errorf("%s: code %d, state %s", g.Group, g.ErrorCode, g.State)
		}
	}
	return nil
}

// lags compares what all groups have committed with the ends: every group has read one record of each of its topics.
func (s *sweep) lags(ctx context.Context) error {
	req := kmsg.NewPtrOffsetFetchRequest()
	for _, name := range s.groups {
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = name
		req.Groups = append(req.Groups, g) // null topics: all that it has
	}
	resp, err := ask[*kmsg.OffsetFetchResponse](ctx, s, req)
	if err != nil {
		return err
	}
	lags := 0
	for _, g := range resp.Groups {
		if g.ErrorCode != 0 {
			return fmt.Errorf("%s: code %d", g.Group, g.ErrorCode)
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				topic := cmp.Or(s.names[t.TopicID], t.Topic) // version 10 has ids
				end, known := s.ends[topic][p.Partition]
				if p.ErrorCode != 0 || !known || p.Offset != 1 || end-p.Offset < 1 {
					return fmt.Errorf("%s: %s-%d: code %d, committed %d of %d", g.Group, topic, p.Partition, p.ErrorCode, p.Offset, end)
				}
				lags++
			}
		}
	}
	if want := len(s.groups) * topicsOfGroup; len(resp.Groups) != len(s.groups) || lags != want {
		return fmt.Errorf("%d groups with %d offsets, not %d with %d", len(resp.Groups), lags, len(s.groups), want)
	}
	return nil
}

// String lists the longest of each step, slowest first.
func (s *sweep) String() string {
	var b strings.Builder
	names := slices.SortedFunc(maps.Keys(s.took), func(a, b string) int { return cmp.Compare(s.took[b], s.took[a]) })
	for _, name := range names {
		fmt.Fprintf(&b, "\n  %-36s %s", name, s.took[name].Round(100*time.Microsecond))
	}
	return b.String()
}
