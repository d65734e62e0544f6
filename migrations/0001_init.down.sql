-- Deletes all metadata of the broker. Without CASCADE: objects that users built
-- on the views make it stop with their names.
DROP FUNCTION pgbroker.may_write(text, text);
DROP FUNCTION pgbroker.api_version();
DROP VIEW pgbroker.transactions, pgbroker.consumer_lag, pgbroker.offsets, pgbroker.group_members,
          pgbroker.groups, pgbroker.brokers, pgbroker.partitions, pgbroker.topics;
DROP SCHEMA pgbroker;
DROP TABLE pgbroker_internal.log_offsets, pgbroker_internal.transaction_offsets, pgbroker_internal.transactions,
           pgbroker_internal.sql_offset, pgbroker_internal.group_offsets, pgbroker_internal.group_members,
           pgbroker_internal.consumer_groups, pgbroker_internal.producer_sources, pgbroker_internal.counters,
           pgbroker_internal.coordinator_shards, pgbroker_internal.partitions, pgbroker_internal.broker_configs,
           pgbroker_internal.topic_configs, pgbroker_internal.topics, pgbroker_internal.brokers, pgbroker_internal.cluster;
