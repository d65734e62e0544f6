ALTER TABLE pgbroker_internal.coordinator_shards ADD COLUMN seq bigint;
UPDATE pgbroker_internal.coordinator_shards s SET seq = coalesce((SELECT max(q.seq) FROM pgbroker_internal.shard_seqs q WHERE q.shard = s.shard), 0);
ALTER TABLE pgbroker_internal.coordinator_shards ALTER COLUMN seq SET NOT NULL;
DROP TABLE pgbroker_internal.shard_seqs;
