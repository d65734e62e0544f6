CREATE TABLE pgbroker_internal.broker_configs (
  broker_id integer          NOT NULL,            -- -1: default of all brokers
  name      text COLLATE "C" NOT NULL,
  value     text             NOT NULL,
  CONSTRAINT broker_configs_pkey PRIMARY KEY (broker_id, name),
  CONSTRAINT broker_configs_id_known CHECK (broker_id >= -1)
);
DROP TABLE pgbroker_internal.resource_configs;
