package meta

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// sqlCatalog reads everything in one statement, so from one snapshot, unless the catalog still has version $1 (-1 reads
// always): then it returns nothing and scans nothing. Rows of six tables share the columns; kind says which.
const sqlCatalog = `/* catalog */
SELECT 0::smallint AS kind, NULL::uuid AS topic_id, c.cluster_id AS name, c.server_mark AS value, NULL::text AS extra,
       0::integer AS n, 0::integer AS leader, 0::integer AS term, 0::integer AS epoch,
       NULL::integer[] AS replicas, NULL::integer[] AS isr, NULL::integer[] AS elr, NULL::integer[] AS adding, NULL::integer[] AS removing,
       c.history AS history, c.catalog_version AS version, NULL::timestamptz AS at
FROM pgbroker_internal.cluster c WHERE c.catalog_version <> $1
UNION ALL
SELECT 1, NULL, b.software, b.endpoints::text, b.rack, b.broker_id, b.state, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, b.incarnation, b.registered_at
FROM pgbroker_internal.brokers b WHERE (SELECT catalog_version FROM pgbroker_internal.cluster) <> $1
UNION ALL
SELECT 2, t.topic_id, t.name, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, t.version, t.created_at
FROM pgbroker_internal.topics t WHERE (SELECT catalog_version FROM pgbroker_internal.cluster) <> $1
UNION ALL
SELECT 3, f.topic_id, f.name, f.value, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL
FROM pgbroker_internal.topic_configs f WHERE (SELECT catalog_version FROM pgbroker_internal.cluster) <> $1
UNION ALL
SELECT 4, p.topic_id, NULL, NULL, NULL, p.partition, p.leader, p.leader_term, p.partition_epoch,
       p.replicas, p.isr, p.elr, p.adding_replicas, p.removing_replicas, p.history, p.version, NULL
FROM pgbroker_internal.partitions p WHERE (SELECT catalog_version FROM pgbroker_internal.cluster) <> $1
UNION ALL
SELECT 5, NULL, r.name, r.value, r.resource, r.kind, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL
FROM pgbroker_internal.resource_configs r WHERE (SELECT catalog_version FROM pgbroker_internal.cluster) <> $1`

const (
	kindCluster = iota
	kindBroker
	kindTopic
	kindConfig
	kindPartition
	kindResource
)

type catalogRow struct {
	kind                               int16
	topicID                            *UUID
	name, value, extra                 *string
	n, leader, term, epoch             int32
	replicas, isr, elr, adding, remove []int32
	history                            int32
	version                            int64
	at                                 *time.Time
}

// readCatalog reads the catalog inside a transaction that holds the cluster row.
func readCatalog(ctx context.Context, tx pgx.Tx) (Catalog, error) {
	rows, err := tx.Query(ctx, sqlCatalog, int64(-1))
	if err != nil {
		return Catalog{}, fmt.Errorf("read catalog: %w", err)
	}
	c, err := scanCatalog(rows)
	if err != nil {
		return Catalog{}, fmt.Errorf("read catalog: %w", err)
	}
	if c == nil {
		return Catalog{}, errNotBootstrapped
	}
	return *c, nil
}

// scanCatalog builds the catalog; nil if there were no rows.
func scanCatalog(rows pgx.Rows) (*Catalog, error) {
	defer rows.Close()
	var c *Catalog
	var brokers []Broker
	topics := map[UUID]*Topic{}
	var configs []catalogRow
	var partitions []Partition
	var resources Catalog
	for rows.Next() {
		var r catalogRow
		if err := rows.Scan(&r.kind, &r.topicID, &r.name, &r.value, &r.extra, &r.n, &r.leader, &r.term, &r.epoch,
			&r.replicas, &r.isr, &r.elr, &r.adding, &r.remove, &r.history, &r.version, &r.at); err != nil {
			return nil, err
		}
		switch r.kind {
		case kindCluster:
			c = &Catalog{Cluster: Cluster{ID: *r.name, History: r.history, ServerMark: *r.value, CatalogVersion: r.version}}
		case kindBroker:
			b := Broker{ID: r.n, Incarnation: r.version, State: BrokerState(r.leader), Rack: r.extra, Software: *r.name, RegisteredAt: r.at.UTC()}
			if err := json.Unmarshal([]byte(*r.value), &b.Endpoints); err != nil {
				return nil, fmt.Errorf("endpoints of broker %d: %w", b.ID, err)
			}
			brokers = append(brokers, b)
		case kindTopic:
			topics[*r.topicID] = &Topic{ID: *r.topicID, Name: *r.name, Configs: map[string]string{}, CreatedAt: r.at.UTC()}
		case kindConfig:
			configs = append(configs, r)
		case kindPartition:
			partitions = append(partitions, Partition{TopicID: *r.topicID, Partition: r.n, Leader: r.leader, Term: r.term, Epoch: r.epoch,
				Replicas: r.replicas, ISR: r.isr, ELR: r.elr, Adding: r.adding, Removing: r.remove, History: r.history, Version: r.version})
		case kindResource:
			resources.put(Resource{Kind: ResourceKind(r.n), Name: fromText(*r.extra)}, fromText(*r.name), fromText(*r.value))
		}
	}
	if err := rows.Err(); err != nil || c == nil {
		return nil, err
	}
	for _, r := range configs {
		topics[*r.topicID].Configs[*r.name] = fromText(*r.value)
	}
	for _, p := range partitions {
		t := topics[p.TopicID]
		t.Partitions = append(t.Partitions, p)
	}
	c.Brokers, c.Resources = brokers, resources.Resources
	c.Topics = make([]Topic, 0, len(topics))
	for _, t := range topics {
		c.Topics = append(c.Topics, *t)
	}
	c.sort()
	return c, nil
}

func (c *Catalog) sort() {
	slices.SortFunc(c.Brokers, func(a, b Broker) int { return int(a.ID) - int(b.ID) })
	slices.SortFunc(c.Topics, func(a, b Topic) int { return strings.Compare(a.Name, b.Name) })
	for _, t := range c.Topics {
		slices.SortFunc(t.Partitions, func(a, b Partition) int { return int(a.Partition) - int(b.Partition) })
	}
}
