package broker

// CreateTopics (key 19), versions 2 to 7. v4 -1 partitions and replicas = the broker's defaults (KIP-464) · v5 flexible,
// the created topic's partitions, replicas and configs in the answer (KIP-525) · v6 THROTTLING_QUOTA_EXCEEDED (KIP-599) ·
// v7 topic id (KIP-516).
// Left out: create.topic.policy.class.name, which would be Java code. -1 is taken as the default in v2 and v3 too, as
// Kafka does.

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/config"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// maxPartitionsPerRequest bounds what one request may create (Kafka: ReplicationControlManager, MAX_RECORDS_PER_USER_OP).
const maxPartitionsPerRequest = 10_000

// topicSpec is a topic as a client asks for it.
type topicSpec struct {
	name        string
	partitions  int32 // -1: num.partitions
	replication int16 // -1: default.replication.factor
	// assignment names the replicas of every partition, the preferred leader first; nil lets the broker choose.
	assignment [][]int32
	configs    map[string]string
	err        error // what is wrong with the request itself
}

func (b *Broker) handleCreateTopics(ctx context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.CreateTopicsRequest)
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	specs := topicSpecs(req.Topics)
	ctx, cancel := changeContext(ctx, req.TimeoutMillis)
	defer cancel()
	quota := b.mutationQuotaOf(r, 6)
	var created []meta.NewTopic
	var errs []error
	if req.ValidateOnly {
		created, errs = b.planTopics(b.catalog.Load(), specs, quota)
	} else {
		created, errs = b.createPlanned(ctx, specs, quota)
	}
	for i, spec := range specs {
		row := kmsg.NewCreateTopicsResponseTopic()
		row.Topic, row.ErrorCode, row.ErrorMessage = spec.name, codeOf(errs[i]), messageOf(errs[i])
		row.Configs = []kmsg.CreateTopicsResponseTopicConfig{} // never null
		b.noteUnmapped("CreateTopics", errs[i])
		if errs[i] == nil {
			b.echoTopic(&row, created[i], req.ValidateOnly)
		}
		resp.Topics = append(resp.Topics, row)
	}
	done(wire.Response{Msg: resp, Throttle: quota.throttled()}, nil)
}

// echoTopic fills in what v5 and later tell of a new topic.
func (b *Broker) echoTopic(row *kmsg.CreateTopicsResponseTopic, t meta.NewTopic, validateOnly bool) {
	if !validateOnly {
		row.TopicID = t.ID
	}
	row.NumPartitions, row.ReplicationFactor = int32(len(t.Replicas)), int16(len(t.Replicas[0]))
	for _, e := range b.catalog.Load().cfg.DescribeTopic(t.Configs) {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.ReadOnly, c.Source, c.IsSensitive = e.Name, e.ReadOnly, int8(e.Source), e.Sensitive
		c.Value = entryValue(e)
		row.Configs = append(row.Configs, c)
	}
}

// entryValue is a property's value on the wire.
func entryValue(e config.Entry) *string {
	if e.Null || e.Sensitive {
		return nil
	}
	return &e.Value
}

// topicSpecs translates the request, one spec for each name; a name that comes twice is in error.
func topicSpecs(asked []kmsg.CreateTopicsRequestTopic) []topicSpec {
	specs := make([]topicSpec, 0, len(asked))
	at := make(map[string]int, len(asked))
	for i := range asked {
		t := &asked[i]
		if n, twice := at[t.Topic]; twice {
			specs[n].err = fmt.Errorf("%w: topic %s is named more than once", errInvalidRequest, t.Topic)
			continue
		}
		at[t.Topic] = len(specs)
		spec := topicSpec{name: t.Topic, partitions: t.NumPartitions, replication: t.ReplicationFactor}
		spec.configs, spec.err = specConfigs(t.Configs)
		if len(t.ReplicaAssignment) > 0 {
			var err error
			if spec.assignment, err = specAssignment(t); spec.err == nil {
				spec.err = err
			}
		}
		specs = append(specs, spec)
	}
	return specs
}

func specConfigs(asked []kmsg.CreateTopicsRequestTopicConfig) (map[string]string, error) {
	configs := make(map[string]string, len(asked))
	for _, c := range asked {
		if c.Value == nil {
			return nil, fmt.Errorf("%w: %s has a null value", errInvalidConfig, c.Name)
		}
		if _, twice := configs[c.Name]; twice {
			return nil, fmt.Errorf("%w: %s is given more than once", errInvalidConfig, c.Name)
		}
		configs[c.Name] = *c.Value
	}
	return configs, nil
}

// specAssignment orders a manual assignment by partition. The replicas are checked by the plan.
func specAssignment(t *kmsg.CreateTopicsRequestTopic) ([][]int32, error) {
	if t.NumPartitions != -1 || t.ReplicationFactor != -1 {
		return nil, fmt.Errorf("%w: with a manual assignment, partitions and replication factor must be -1", errInvalidRequest)
	}
	assignment := make([][]int32, len(t.ReplicaAssignment))
	for _, a := range t.ReplicaAssignment {
		if a.Partition < 0 || int(a.Partition) >= len(assignment) || assignment[a.Partition] != nil {
			return nil, fmt.Errorf("%w: partitions must be numbered from 0 without gaps", errInvalidAssignment)
		}
		if len(a.Replicas) == 0 {
			return nil, fmt.Errorf("%w: partition %d has no replicas", errInvalidAssignment, a.Partition)
		}
		assignment[a.Partition] = a.Replicas
	}
	return assignment, nil
}

// createPlanned creates what can be created, in one commit, and returns one error for each spec, and what was created in the
// places of the specs. A topic without an error can be written to. While Postgres is away it tries again until ctx ends.
func (b *Broker) createPlanned(ctx context.Context, specs []topicSpec, quota *mutationQuota) ([]meta.NewTopic, []error) {
	end, err := b.beginChange(ctx)
	if err != nil {
		return nil, allErrors(len(specs), err)
	}
	defer end()
	plans, errs := b.planTopics(b.catalog.Load(), specs, quota)
	var topics []meta.NewTopic
	var places []int
	for i := range plans {
		if errs[i] == nil {
			topics, places = append(topics, plans[i]), append(places, i)
		}
	}
	if len(topics) == 0 {
		return plans, errs
	}
	var outcome []error
	err = retryChange(ctx, func(int) error {
		c, each, err := b.store.CreateTopics(ctx, b.owner, topics)
		if err != nil {
			return err
		}
		outcome = each
		return b.serve(c)
	})
	for n, i := range places {
		switch {
		case err != nil:
			errs[i] = fmt.Errorf("create topic %s: %w", topics[n].Name, err)
		case outcome[n] != nil && !b.hasTopic(topics[n].ID): // else an attempt with unknown outcome had made it
			errs[i] = fmt.Errorf("create topic %s: %w", topics[n].Name, outcome[n])
		}
	}
	return plans, errs
}

func (b *Broker) hasTopic(id meta.UUID) bool {
	_, ok := b.catalog.Load().topicByID(id)
	return ok
}

// planTopics checks specs against the catalog and against each other and fills in the defaults. errs has one entry for
// each spec; where it is nil, the plan in the same place can be committed.
func (b *Broker) planTopics(cat *catalog, specs []topicSpec, quota *mutationQuota) (plans []meta.NewTopic, errs []error) {
	plans, errs = make([]meta.NewTopic, len(specs)), make([]error, len(specs))
	taken := make(map[string]string, len(cat.topics))
	for _, t := range cat.topics {
		taken[collisionKey(t.name)] = t.name
	}
	live := liveBrokers(cat)
	total := 0
	for i, spec := range specs {
		if errs[i] = checkNewName(cat, taken, spec.name); errs[i] != nil {
			continue
		}
		if plans[i], errs[i] = b.planTopic(live, spec); errs[i] != nil {
			continue
		}
		if total += len(plans[i].Replicas); total > maxPartitionsPerRequest {
			errs[i] = errTooManyPartitions
			continue
		}
		if errs[i] = quota.take(len(plans[i].Replicas)); errs[i] != nil {
			total -= len(plans[i].Replicas)
			continue
		}
		taken[collisionKey(spec.name)] = spec.name
	}
	return plans, errs
}

var errTooManyPartitions = fmt.Errorf("%w: one request may create %d partitions", errPolicy, maxPartitionsPerRequest)

func checkNewName(cat *catalog, taken map[string]string, name string) error {
	if err := validTopicName(name); err != nil {
		return err
	}
	if _, exists := cat.topicByName(name); exists || isInternalTopic(name) {
		return fmt.Errorf("%w: %s", meta.ErrTopicExists, name)
	}
	if other, ok := taken[collisionKey(name)]; ok {
		return fmt.Errorf("%w: %s collides with topic %s, since '.' and '_' are the same in names of metrics", errInvalidTopic, name, other)
	}
	return nil
}

// planTopic checks one topic whose name is free.
func (b *Broker) planTopic(live []int32, spec topicSpec) (plan meta.NewTopic, err error) {
	if spec.err != nil {
		return plan, spec.err
	}
	replicas := spec.assignment
	if replicas != nil {
		err = checkAssignment(live, replicas, len(replicas[0]))
	} else {
		replicas, err = b.chooseReplicas(live, spec)
	}
	if err != nil {
		return plan, err
	}
	for name, value := range spec.configs {
		if err := config.ValidateTopic(name, value); err != nil {
			return plan, fmt.Errorf("%w: %w", errInvalidConfig, err)
		}
	}
	if _, err := b.catalog.Load().cfg.Topic(spec.configs); err != nil {
		return plan, fmt.Errorf("%w: %w", errInvalidConfig, err)
	}
	return meta.NewTopic{ID: newTopicID(), Name: spec.name, Configs: spec.configs, Replicas: replicas}, nil
}

func (b *Broker) chooseReplicas(live []int32, spec topicSpec) ([][]int32, error) {
	partitions, factor := int(spec.partitions), int(spec.replication)
	if partitions == -1 {
		partitions = b.cfg.Int("num.partitions")
	}
	if factor == -1 {
		factor = b.cfg.Int("default.replication.factor")
	}
	switch {
	case partitions <= 0:
		return nil, fmt.Errorf("%w: %d, it must be above 0, or -1 for the broker's default", errInvalidPartitions, partitions)
	case partitions > maxPartitionsPerRequest:
		return nil, errTooManyPartitions
	case factor <= 0:
		return nil, fmt.Errorf("%w: %d, it must be above 0, or -1 for the broker's default", errInvalidReplication, factor)
	case factor > len(live):
		return nil, fmt.Errorf("%w: %d, there are %d live brokers", errInvalidReplication, factor, len(live))
	}
	return placeReplicas(live, 0, partitions, factor), nil
}

// placeReplicas spreads partitions over brokers in turn, the preferred leader first. from is the first partition's id.
func placeReplicas(live []int32, from, partitions, factor int) [][]int32 {
	placed := make([][]int32, partitions)
	for p := range placed {
		for r := range factor {
			placed[p] = append(placed[p], live[(from+p+r)%len(live)])
		}
	}
	return placed
}

// checkAssignment wants the same number of different live brokers for each partition.
func checkAssignment(live []int32, assignment [][]int32, factor int) error {
	known := make(map[int32]bool, len(live))
	for _, id := range live {
		known[id] = true
	}
	for p, replicas := range assignment {
		if len(replicas) != factor {
			return fmt.Errorf("%w: entry %d has %d replicas and should have %d", errInvalidAssignment, p, len(replicas), factor)
		}
		seen := make(map[int32]bool, len(replicas))
		for _, id := range replicas {
			if !known[id] || seen[id] {
				return fmt.Errorf("%w: entry %d names broker %d, which is named twice or is not live", errInvalidAssignment, p, id)
			}
			seen[id] = true
		}
	}
	return nil
}

// liveBrokers are the ids that may get a replica, in rising order as the catalog has them.
func liveBrokers(cat *catalog) []int32 {
	var ids []int32
	for _, n := range cat.brokers {
		if n.State == meta.BrokerLive {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// newTopicID is a random UUID (RFC 9562, version 4) whose base64 form does not begin with '-', as Kafka's Uuid.randomUuid.
func newTopicID() meta.UUID {
	var id meta.UUID
	for {
		_, _ = rand.Read(id[:])
		id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
		if id[0]>>2 != 62 {
			return id
		}
	}
}

// allErrors is one error in every place.
func allErrors(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
