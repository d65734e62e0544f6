-- Properties that were set on a running cluster, except those of topics. broker_configs, which nothing ever wrote, was for
-- brokers only.

DROP TABLE pgbroker_internal.broker_configs;

CREATE TABLE pgbroker_internal.resource_configs (
  kind     smallint         NOT NULL,             -- Kafka's ConfigResource.Type: 4 broker, 16 client metrics, 32 group; ours: 64 client quota
  resource text COLLATE "C" NOT NULL,             -- broker id, '' for the default of all; name; group; entity of a quota as client-id=c&user=u
  name     text COLLATE "C" NOT NULL,
  value    text             NOT NULL,
  CONSTRAINT resource_configs_pkey PRIMARY KEY (kind, resource, name),
  CONSTRAINT resource_configs_kind_known CHECK (kind IN (4, 16, 32, 64))
);
