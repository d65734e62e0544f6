-- Private tables live in pgbroker_internal and may change with any version.
-- Views and functions in pgbroker are public: columns are only ever added.
-- Every table belongs to the role that runs the migration; it needs CREATE on
-- the database and nothing else. Nothing is created in the schema public.
--
-- Client text (group ids, member ids, metadata, ...) is stored as it came; text
-- that Postgres cannot hold (NUL, invalid UTF-8) is stored as U+FFFF '64:' base64.

CREATE SCHEMA IF NOT EXISTS pgbroker_internal;
CREATE SCHEMA IF NOT EXISTS pgbroker;

CREATE TABLE pgbroker_internal.cluster (          -- one row
  singleton          boolean     NOT NULL DEFAULT true,
  cluster_id         text        NOT NULL,        -- 22 characters, Kafka's form; equal in every meta.properties
  history            integer     NOT NULL,        -- +1 when a fork of the database is seen
  history_began      timestamptz NOT NULL,        -- when, by that server's clock (operators)
  server_mark        text        NOT NULL,        -- 'system_identifier/timeline', or 'unknown'
  catalog_version    bigint      NOT NULL,        -- +1 in every transaction that changes brokers' visible fields, topics, partitions, configs; its row lock orders them
  coordinator_shards smallint    NOT NULL,        -- 64, fixed
  CONSTRAINT cluster_one_row PRIMARY KEY (singleton),
  CONSTRAINT cluster_singleton_true CHECK (singleton),
  CONSTRAINT cluster_history_positive CHECK (history > 0)
);

CREATE TABLE pgbroker_internal.brokers (
  broker_id     integer     NOT NULL,
  incarnation   bigint      NOT NULL,             -- Kafka's broker epoch; +1 at each registration
  process_id    uuid        NOT NULL,             -- made by the process: finds its registration after an unknown COMMIT
  state         smallint    NOT NULL,             -- 0 fenced 1 live 2 stopping 3 stopped
  lease_until   timestamptz NOT NULL,             -- database clock
  lease_ms      integer     NOT NULL,
  beat          bigint      NOT NULL,             -- +1 in each renewal and each control transaction of this broker
  backend_pid   integer,                          -- its control session (fast path; operators)
  backend_start timestamptz,
  log_dirs      uuid[]      NOT NULL,             -- directory ids
  endpoints     jsonb       NOT NULL,             -- [{"name","host","port","protocol"}]
  rack          text,
  software      text        NOT NULL,
  features      jsonb       NOT NULL DEFAULT '{}',
  registered_at timestamptz NOT NULL,
  version       bigint      NOT NULL,             -- catalog_version of the last visible change (not: lease, beat)
  CONSTRAINT brokers_pkey PRIMARY KEY (broker_id),
  CONSTRAINT brokers_id_not_negative CHECK (broker_id >= 0),
  CONSTRAINT brokers_incarnation_positive CHECK (incarnation > 0),
  CONSTRAINT brokers_state_known CHECK (state BETWEEN 0 AND 3),
  CONSTRAINT brokers_lease_positive CHECK (lease_ms > 0)
) WITH (fillfactor = 50);                         -- lease and beat: in no index, so HOT

CREATE TABLE pgbroker_internal.topics (
  topic_id   uuid             NOT NULL,
  name       text COLLATE "C" NOT NULL,
  created_at timestamptz      NOT NULL,
  version    bigint           NOT NULL,           -- catalog_version of the last change
  CONSTRAINT topics_pkey PRIMARY KEY (topic_id),
  CONSTRAINT topics_name_unique UNIQUE (name),
  CONSTRAINT topics_name_length CHECK (octet_length(name) BETWEEN 1 AND 249)
);

CREATE TABLE pgbroker_internal.topic_configs (
  topic_id uuid             NOT NULL,
  name     text COLLATE "C" NOT NULL,
  value    text             NOT NULL,
  CONSTRAINT topic_configs_pkey PRIMARY KEY (topic_id, name),
  CONSTRAINT topic_configs_topic_exists FOREIGN KEY (topic_id) REFERENCES pgbroker_internal.topics
);

CREATE TABLE pgbroker_internal.broker_configs (
  broker_id integer          NOT NULL,            -- -1: default of all brokers
  name      text COLLATE "C" NOT NULL,
  value     text             NOT NULL,
  CONSTRAINT broker_configs_pkey PRIMARY KEY (broker_id, name),
  CONSTRAINT broker_configs_id_known CHECK (broker_id >= -1)
);

CREATE TABLE pgbroker_internal.partitions (
  topic_id          uuid      NOT NULL,
  partition         integer   NOT NULL,
  leader            integer   NOT NULL,           -- -1 none
  leader_term       integer   NOT NULL,           -- 0 never led; one process leads a term; never falls, never used twice
  partition_epoch   integer   NOT NULL,           -- +1 at every change of the row
  replicas          integer[] NOT NULL,           -- [1] preferred
  isr               integer[] NOT NULL,
  elr               integer[] NOT NULL DEFAULT '{}',
  last_known_elr    integer[] NOT NULL DEFAULT '{}',
  adding_replicas   integer[] NOT NULL DEFAULT '{}',
  removing_replicas integer[] NOT NULL DEFAULT '{}',
  wanted_leader     integer,                      -- a wish; only the leader acts on it
  recovering        boolean   NOT NULL DEFAULT false, -- last election was unclean
  history           integer   NOT NULL,           -- cluster.history when last changed or confirmed
  version           bigint    NOT NULL,
  CONSTRAINT partitions_pkey PRIMARY KEY (topic_id, partition),
  CONSTRAINT partitions_topic_exists FOREIGN KEY (topic_id) REFERENCES pgbroker_internal.topics,
  CONSTRAINT partitions_number_not_negative CHECK (partition >= 0),
  CONSTRAINT partitions_term_not_negative CHECK (leader_term >= 0),
  CONSTRAINT partitions_epoch_not_negative CHECK (partition_epoch >= 0),
  CONSTRAINT partitions_have_a_replica CHECK (cardinality(replicas) > 0),
  CONSTRAINT partitions_leader_in_sync CHECK (leader = -1 OR leader = ANY (isr)),
  CONSTRAINT partitions_isr_are_replicas CHECK (isr <@ replicas),
  CONSTRAINT partitions_elr_are_replicas CHECK (elr <@ replicas),
  CONSTRAINT partitions_isr_or_elr CHECK (NOT isr && elr)
) WITH (fillfactor = 70);                         -- no index on version: a full read of 10k rows costs milliseconds

CREATE TABLE pgbroker_internal.coordinator_shards (
  shard   smallint NOT NULL,
  owner   integer  NOT NULL,                      -- -1 none
  term    integer  NOT NULL,                      -- as leader_term; coordinator epoch in markers
  seq     bigint   NOT NULL,                      -- +1 in every transaction of the shard
  history integer  NOT NULL,
  version bigint   NOT NULL,
  CONSTRAINT coordinator_shards_pkey PRIMARY KEY (shard),
  CONSTRAINT coordinator_shards_number CHECK (shard BETWEEN 0 AND 63),
  CONSTRAINT coordinator_shards_term_not_negative CHECK (term >= 0)
) WITH (fillfactor = 50);

CREATE TABLE pgbroker_internal.counters (
  name  text   NOT NULL,                          -- 'producer_id': first id of the next block
  value bigint NOT NULL,
  CONSTRAINT counters_pkey PRIMARY KEY (name)
) WITH (fillfactor = 50);

CREATE TABLE pgbroker_internal.producer_sources ( -- producer ids of the broker's own sources, never expired while the source lives
  source      text        NOT NULL,
  producer_id bigint      NOT NULL,
  created_at  timestamptz NOT NULL,
  CONSTRAINT producer_sources_pkey PRIMARY KEY (source),
  CONSTRAINT producer_sources_id_unique UNIQUE (producer_id)
);

CREATE TABLE pgbroker_internal.consumer_groups (
  group_id      text COLLATE "C" NOT NULL,
  shard         smallint         NOT NULL,
  kind          text             NOT NULL,        -- 'classic'; later 'consumer'
  protocol_type text             NOT NULL,
  protocol      text             NOT NULL,        -- chosen assignor, '' none
  generation    integer          NOT NULL,
  leader        text             NOT NULL,        -- member id, '' none
  empty_since   timestamptz,                      -- when the last member left (KIP-211)
  offset_owner  text             NOT NULL DEFAULT 'broker', -- 'sql': its offsets are in sql_offset
  version       bigint           NOT NULL,
  CONSTRAINT consumer_groups_pkey PRIMARY KEY (group_id),
  CONSTRAINT consumer_groups_offset_owner_known CHECK (offset_owner IN ('broker', 'sql'))
) WITH (fillfactor = 70);
CREATE INDEX consumer_groups_shard ON pgbroker_internal.consumer_groups (shard);

CREATE TABLE pgbroker_internal.group_members (
  group_id             text COLLATE "C" NOT NULL,
  member_id            text COLLATE "C" NOT NULL,
  shard                smallint         NOT NULL,
  instance_id          text,                      -- static members (KIP-345)
  client_id            text             NOT NULL,
  client_host          text             NOT NULL,
  session_timeout_ms   integer          NOT NULL,
  rebalance_timeout_ms integer          NOT NULL,
  protocols            jsonb            NOT NULL, -- [{"name", "metadata" base64}] in the member's order of preference
  assignment           bytea,
  version              bigint           NOT NULL,
  CONSTRAINT group_members_pkey PRIMARY KEY (group_id, member_id)
) WITH (fillfactor = 70);
CREATE INDEX group_members_shard ON pgbroker_internal.group_members (shard);

CREATE TABLE pgbroker_internal.group_offsets (
  group_id         text COLLATE "C" NOT NULL,
  topic_id         uuid             NOT NULL,     -- no foreign key: a commit must not wait for a topic's lock
  partition        integer          NOT NULL,
  shard            smallint         NOT NULL,
  committed_offset bigint           NOT NULL,
  leader_epoch     integer          NOT NULL,     -- -1 none
  metadata         text             NOT NULL,
  committed_at     timestamptz      NOT NULL,
  expires_at       timestamptz,                   -- null: by offsets.retention.minutes
  version          bigint           NOT NULL,     -- highest seq or version seen in the shard + 1; foreign writers add 2^32
  CONSTRAINT group_offsets_pkey PRIMARY KEY (group_id, topic_id, partition)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05); -- no changing column is indexed, so HOT
CREATE INDEX group_offsets_shard ON pgbroker_internal.group_offsets (shard);
CREATE INDEX group_offsets_topic ON pgbroker_internal.group_offsets (topic_id);

CREATE TABLE pgbroker_internal.sql_offset (       -- reserved: offsets that an application commits in its own transaction
  group_id    text COLLATE "C" NOT NULL,
  topic       text COLLATE "C" NOT NULL,          -- a name: may live in another database than the topics
  partition   integer          NOT NULL,
  next_offset bigint           NOT NULL,
  metadata    text,
  updated_at  timestamptz      NOT NULL DEFAULT clock_timestamp(),
  version     bigint           NOT NULL DEFAULT 1,
  CONSTRAINT sql_offset_pkey PRIMARY KEY (group_id, topic, partition)
) WITH (fillfactor = 70);

CREATE TABLE pgbroker_internal.transactions (     -- one row per transactional id
  transactional_id    text COLLATE "C" NOT NULL,
  shard               smallint NOT NULL,
  producer_id         bigint   NOT NULL,
  epoch               smallint NOT NULL,
  last_epoch          smallint NOT NULL DEFAULT -1, -- -1 none
  timeout_ms          integer  NOT NULL,
  outcome             smallint NOT NULL DEFAULT 0,  -- of the last decision: 0 none 1 commit 2 abort
  decided_producer_id bigint   NOT NULL DEFAULT -1,
  decided_epoch       smallint NOT NULL DEFAULT -1,
  marker_epoch        smallint NOT NULL DEFAULT -1,
  partitions          jsonb    NOT NULL DEFAULT '[]', -- what the decision ends: [[topic id, partition, first offset]]
  decided_by          text,
  decided_term        integer,                    -- shard term of the decision
  version             bigint   NOT NULL,
  CONSTRAINT transactions_pkey PRIMARY KEY (transactional_id),
  CONSTRAINT transactions_outcome_known CHECK (outcome BETWEEN 0 AND 2)
) WITH (fillfactor = 70);
CREATE INDEX transactions_shard ON pgbroker_internal.transactions (shard);

CREATE TABLE pgbroker_internal.transaction_offsets ( -- offsets inside an open transaction
  transactional_id text COLLATE "C" NOT NULL,
  group_id         text COLLATE "C" NOT NULL,
  topic_id         uuid             NOT NULL,
  partition        integer          NOT NULL,
  shard            smallint         NOT NULL,     -- of the transactional id
  committed_offset bigint           NOT NULL,
  leader_epoch     integer          NOT NULL,
  metadata         text             NOT NULL,
  producer_id      bigint           NOT NULL,
  epoch            smallint         NOT NULL,
  version          bigint           NOT NULL,
  CONSTRAINT transaction_offsets_pkey PRIMARY KEY (transactional_id, group_id, topic_id, partition)
) WITH (fillfactor = 70);
CREATE INDEX transaction_offsets_shard ON pgbroker_internal.transaction_offsets (shard);

CREATE TABLE pgbroker_internal.log_offsets (      -- written back every few seconds, never on the hot path
  topic_id      uuid        NOT NULL,
  partition     integer     NOT NULL,
  start_offset  bigint      NOT NULL,
  stable_offset bigint      NOT NULL,
  high_offset   bigint      NOT NULL,
  end_offset    bigint      NOT NULL,
  size_bytes    bigint      NOT NULL,
  reported_at   timestamptz NOT NULL,
  CONSTRAINT log_offsets_pkey PRIMARY KEY (topic_id, partition)
) WITH (fillfactor = 50);

-- ---------------------------------------------------------------- public

COMMENT ON SCHEMA pgbroker IS 'Views and functions of the Kafka broker. Columns are only ever added; see pgbroker.api_version().';
COMMENT ON SCHEMA pgbroker_internal IS 'Private tables of the Kafka broker. Read the views in schema pgbroker instead.';

CREATE VIEW pgbroker.topics AS
SELECT t.topic_id, t.name,
       p.partitions, p.replication_factor, c.configs, t.created_at, l.size_bytes
FROM pgbroker_internal.topics t
CROSS JOIN LATERAL (SELECT count(*)::integer AS partitions, coalesce(max(cardinality(replicas)), 0) AS replication_factor
                    FROM pgbroker_internal.partitions WHERE topic_id = t.topic_id) p
CROSS JOIN LATERAL (SELECT coalesce(jsonb_object_agg(name, value), '{}') AS configs
                    FROM pgbroker_internal.topic_configs WHERE topic_id = t.topic_id) c
CROSS JOIN LATERAL (SELECT sum(size_bytes)::bigint AS size_bytes
                    FROM pgbroker_internal.log_offsets WHERE topic_id = t.topic_id) l;
COMMENT ON VIEW pgbroker.topics IS 'One row per topic.';
COMMENT ON COLUMN pgbroker.topics.topic_id IS 'Kafka topic id; a topic created again under the same name has another one.';
COMMENT ON COLUMN pgbroker.topics.name IS 'Topic name.';
COMMENT ON COLUMN pgbroker.topics.partitions IS 'Number of partitions.';
COMMENT ON COLUMN pgbroker.topics.replication_factor IS 'Replicas of each partition.';
COMMENT ON COLUMN pgbroker.topics.configs IS 'Properties set on this topic, as name and value; defaults are not listed.';
COMMENT ON COLUMN pgbroker.topics.created_at IS 'When the topic was created.';
COMMENT ON COLUMN pgbroker.topics.size_bytes IS 'Bytes of all its logs when last reported; null before the first report.';

CREATE VIEW pgbroker.partitions AS
SELECT t.name AS topic, p.topic_id, p.partition, nullif(p.leader, -1) AS leader, p.leader_term AS leader_epoch,
       p.replicas, p.isr, p.elr,
       l.start_offset, l.stable_offset, l.high_offset AS high_watermark, l.end_offset, l.size_bytes, l.reported_at
FROM pgbroker_internal.partitions p
JOIN pgbroker_internal.topics t USING (topic_id)
LEFT JOIN pgbroker_internal.log_offsets l USING (topic_id, partition);
COMMENT ON VIEW pgbroker.partitions IS 'One row per partition, with its leader and the offsets of its log when last reported.';
COMMENT ON COLUMN pgbroker.partitions.topic IS 'Topic name.';
COMMENT ON COLUMN pgbroker.partitions.topic_id IS 'Kafka topic id.';
COMMENT ON COLUMN pgbroker.partitions.partition IS 'Partition number, from 0.';
COMMENT ON COLUMN pgbroker.partitions.leader IS 'Broker id of the leader; null if there is none.';
COMMENT ON COLUMN pgbroker.partitions.leader_epoch IS 'Leader epoch (term): rises with every change of leader and with every start of the leader.';
COMMENT ON COLUMN pgbroker.partitions.replicas IS 'Broker ids that keep a copy; the first is the preferred leader.';
COMMENT ON COLUMN pgbroker.partitions.isr IS 'Broker ids in sync.';
COMMENT ON COLUMN pgbroker.partitions.elr IS 'Broker ids not in sync that may still be elected (KIP-966).';
COMMENT ON COLUMN pgbroker.partitions.start_offset IS 'First offset still stored; null before the first report.';
COMMENT ON COLUMN pgbroker.partitions.stable_offset IS 'Last stable offset: read_committed consumers read below it.';
COMMENT ON COLUMN pgbroker.partitions.high_watermark IS 'Consumers read below it.';
COMMENT ON COLUMN pgbroker.partitions.end_offset IS 'Next offset to be written.';
COMMENT ON COLUMN pgbroker.partitions.size_bytes IS 'Bytes of the log.';
COMMENT ON COLUMN pgbroker.partitions.reported_at IS 'When the offsets and the size were reported.';

CREATE VIEW pgbroker.brokers AS
SELECT broker_id,
       CASE state WHEN 0 THEN 'fenced' WHEN 1 THEN 'live' WHEN 2 THEN 'stopping' ELSE 'stopped' END AS state,
       state IN (1, 2) AND lease_until > clock_timestamp() AS lease_running,
       lease_until, incarnation AS broker_epoch, endpoints, rack, software, registered_at
FROM pgbroker_internal.brokers;
COMMENT ON VIEW pgbroker.brokers IS 'One row per broker that ever registered.';
COMMENT ON COLUMN pgbroker.brokers.broker_id IS 'Broker id (node.id).';
COMMENT ON COLUMN pgbroker.brokers.state IS 'fenced, live, stopping or stopped, as last written.';
COMMENT ON COLUMN pgbroker.brokers.lease_running IS 'Whether the broker has renewed its lease in time.';
COMMENT ON COLUMN pgbroker.brokers.lease_until IS 'End of its lease by the clock of this server.';
COMMENT ON COLUMN pgbroker.brokers.broker_epoch IS 'Kafka broker epoch: rises with every registration.';
COMMENT ON COLUMN pgbroker.brokers.endpoints IS 'Advertised listeners: array of name, host, port, protocol.';
COMMENT ON COLUMN pgbroker.brokers.rack IS 'broker.rack, or null.';
COMMENT ON COLUMN pgbroker.brokers.software IS 'Program and version.';
COMMENT ON COLUMN pgbroker.brokers.registered_at IS 'When this incarnation registered.';

CREATE VIEW pgbroker.groups AS
SELECT g.group_id, g.kind,
       CASE WHEN m.members = 0 THEN 'Empty' ELSE 'Active' END AS state,
       m.members, g.generation, g.protocol_type, g.protocol, g.leader, g.offset_owner, g.empty_since
FROM pgbroker_internal.consumer_groups g
CROSS JOIN LATERAL (SELECT count(*)::integer AS members
                    FROM pgbroker_internal.group_members WHERE group_id = g.group_id) m;
COMMENT ON VIEW pgbroker.groups IS 'One row per consumer group.';
COMMENT ON COLUMN pgbroker.groups.group_id IS 'Group id.';
COMMENT ON COLUMN pgbroker.groups.kind IS 'Group protocol: classic.';
COMMENT ON COLUMN pgbroker.groups.state IS 'Empty or Active. A rebalance under way is not stored; ask the broker (kafka-consumer-groups --state).';
COMMENT ON COLUMN pgbroker.groups.members IS 'Number of members.';
COMMENT ON COLUMN pgbroker.groups.generation IS 'Generation: rises with every rebalance.';
COMMENT ON COLUMN pgbroker.groups.protocol_type IS 'Protocol type: consumer for consumers.';
COMMENT ON COLUMN pgbroker.groups.protocol IS 'Assignor that the group uses; empty if none.';
COMMENT ON COLUMN pgbroker.groups.leader IS 'Member id of the group leader; empty if none.';
COMMENT ON COLUMN pgbroker.groups.offset_owner IS 'Who keeps the offsets: broker or sql.';
COMMENT ON COLUMN pgbroker.groups.empty_since IS 'When the last member left; null while there are members.';

CREATE VIEW pgbroker.group_members AS
SELECT group_id, member_id, instance_id AS group_instance_id, client_id, client_host,
       session_timeout_ms, rebalance_timeout_ms
FROM pgbroker_internal.group_members;
COMMENT ON VIEW pgbroker.group_members IS 'One row per member of a consumer group.';
COMMENT ON COLUMN pgbroker.group_members.group_id IS 'Group id.';
COMMENT ON COLUMN pgbroker.group_members.member_id IS 'Member id.';
COMMENT ON COLUMN pgbroker.group_members.group_instance_id IS 'group.instance.id of a static member, else null.';
COMMENT ON COLUMN pgbroker.group_members.client_id IS 'client.id.';
COMMENT ON COLUMN pgbroker.group_members.client_host IS 'Address the member joined from.';
COMMENT ON COLUMN pgbroker.group_members.session_timeout_ms IS 'Session timeout, milliseconds.';
COMMENT ON COLUMN pgbroker.group_members.rebalance_timeout_ms IS 'Rebalance timeout, milliseconds.';

CREATE VIEW pgbroker.offsets AS
SELECT o.group_id, t.name AS topic, o.topic_id, o.partition, o.committed_offset,
       nullif(o.leader_epoch, -1) AS leader_epoch, o.metadata, o.committed_at, o.expires_at
FROM pgbroker_internal.group_offsets o
JOIN pgbroker_internal.topics t USING (topic_id);
COMMENT ON VIEW pgbroker.offsets IS 'Committed offsets, one row per group and partition.';
COMMENT ON COLUMN pgbroker.offsets.group_id IS 'Group id.';
COMMENT ON COLUMN pgbroker.offsets.topic IS 'Topic name.';
COMMENT ON COLUMN pgbroker.offsets.topic_id IS 'Kafka topic id.';
COMMENT ON COLUMN pgbroker.offsets.partition IS 'Partition number.';
COMMENT ON COLUMN pgbroker.offsets.committed_offset IS 'Next offset the group will read.';
COMMENT ON COLUMN pgbroker.offsets.leader_epoch IS 'Leader epoch of the last record read; null if the client did not say.';
COMMENT ON COLUMN pgbroker.offsets.metadata IS 'Text the client committed with the offset.';
COMMENT ON COLUMN pgbroker.offsets.committed_at IS 'When it was committed.';
COMMENT ON COLUMN pgbroker.offsets.expires_at IS 'When it expires, if the client asked for a retention; null: by offsets.retention.minutes.';

CREATE VIEW pgbroker.consumer_lag AS
SELECT o.group_id, t.name AS topic, o.partition, o.committed_offset,
       l.start_offset, l.high_offset AS high_watermark,
       CASE WHEN l.high_offset IS NOT NULL THEN greatest(l.high_offset - greatest(o.committed_offset, l.start_offset), 0) END AS lag,
       l.reported_at
FROM pgbroker_internal.group_offsets o
JOIN pgbroker_internal.topics t USING (topic_id)
LEFT JOIN pgbroker_internal.log_offsets l USING (topic_id, partition);
COMMENT ON VIEW pgbroker.consumer_lag IS 'How far each group is behind, by the log offsets last reported.';
COMMENT ON COLUMN pgbroker.consumer_lag.group_id IS 'Group id.';
COMMENT ON COLUMN pgbroker.consumer_lag.topic IS 'Topic name.';
COMMENT ON COLUMN pgbroker.consumer_lag.partition IS 'Partition number.';
COMMENT ON COLUMN pgbroker.consumer_lag.committed_offset IS 'Next offset the group will read.';
COMMENT ON COLUMN pgbroker.consumer_lag.start_offset IS 'First offset still stored.';
COMMENT ON COLUMN pgbroker.consumer_lag.high_watermark IS 'Consumers read below it.';
COMMENT ON COLUMN pgbroker.consumer_lag.lag IS 'Offsets between the position and the high watermark; null before the first report.';
COMMENT ON COLUMN pgbroker.consumer_lag.reported_at IS 'When the log offsets were reported.';

CREATE VIEW pgbroker.transactions AS
SELECT x.transactional_id, x.producer_id, x.epoch AS producer_epoch, x.timeout_ms,
       CASE x.outcome WHEN 1 THEN 'commit' WHEN 2 THEN 'abort' ELSE 'none' END AS last_outcome,
       jsonb_array_length(x.partitions) AS last_partitions, x.decided_by AS last_decided_by,
       o.pending_offsets
FROM pgbroker_internal.transactions x
CROSS JOIN LATERAL (SELECT count(*)::integer AS pending_offsets
                    FROM pgbroker_internal.transaction_offsets WHERE transactional_id = x.transactional_id) o;
COMMENT ON VIEW pgbroker.transactions IS 'One row per transactional id, with its last decision.';
COMMENT ON COLUMN pgbroker.transactions.transactional_id IS 'transactional.id.';
COMMENT ON COLUMN pgbroker.transactions.producer_id IS 'Producer id.';
COMMENT ON COLUMN pgbroker.transactions.producer_epoch IS 'Producer epoch: older ones are fenced.';
COMMENT ON COLUMN pgbroker.transactions.timeout_ms IS 'Transaction timeout, milliseconds.';
COMMENT ON COLUMN pgbroker.transactions.last_outcome IS 'commit, abort, or none before the first decision.';
COMMENT ON COLUMN pgbroker.transactions.last_partitions IS 'Partitions that the last decision ended.';
COMMENT ON COLUMN pgbroker.transactions.last_decided_by IS 'Who took the last decision.';
COMMENT ON COLUMN pgbroker.transactions.pending_offsets IS 'Offsets that wait for the decision of the open transaction.';

CREATE FUNCTION pgbroker.api_version() RETURNS integer
  LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
  AS 'SELECT 1';
COMMENT ON FUNCTION pgbroker.api_version() IS 'Version of the views and functions in this schema. It rises only when something is taken away or changes its meaning.';

-- Answers yes or no only, therefore with its owner's rights.
CREATE FUNCTION pgbroker.may_write(role text, topic text) RETURNS boolean
  LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  AS $$
    SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = may_write.role)
       AND EXISTS (SELECT FROM pgbroker_internal.topics WHERE name = may_write.topic AND left(name, 2) <> '__')
  $$;
REVOKE EXECUTE ON FUNCTION pgbroker.may_write(text, text) FROM PUBLIC;
COMMENT ON FUNCTION pgbroker.may_write(text, text) IS 'Whether the database role may write to the topic. Without ACLs: any existing role, any existing topic that is not internal.';
