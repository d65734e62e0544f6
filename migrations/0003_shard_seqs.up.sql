-- A shard's seq is the highest of rows that are only inserted, under a lock of the shard's row. One row that each commit
-- updates gets slow while anybody's snapshot stays open: its old versions cannot go.

CREATE TABLE pgbroker_internal.shard_seqs (
  shard  smallint NOT NULL,
  seq    bigint   NOT NULL,
  filler boolean  NOT NULL DEFAULT false,         -- takes the number of a commit that must not happen any more
  CONSTRAINT shard_seqs_pkey PRIMARY KEY (shard, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

INSERT INTO pgbroker_internal.shard_seqs (shard, seq) SELECT shard, seq FROM pgbroker_internal.coordinator_shards;
ALTER TABLE pgbroker_internal.coordinator_shards DROP COLUMN seq;
