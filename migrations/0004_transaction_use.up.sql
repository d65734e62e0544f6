-- When a transactional id was last decided about: an id that is idle for transactional.id.expiration.ms is removed.

ALTER TABLE pgbroker_internal.transactions
  ADD COLUMN used_at timestamptz NOT NULL DEFAULT now(); -- by the broker's clock; an existing id counts as used at the migration

CREATE OR REPLACE VIEW pgbroker.transactions AS
SELECT x.transactional_id, x.producer_id, x.epoch AS producer_epoch, x.timeout_ms,
       CASE x.outcome WHEN 1 THEN 'commit' WHEN 2 THEN 'abort' ELSE 'none' END AS last_outcome,
       jsonb_array_length(x.partitions) AS last_partitions, x.decided_by AS last_decided_by,
       o.pending_offsets, x.used_at AS last_used_at
FROM pgbroker_internal.transactions x
CROSS JOIN LATERAL (SELECT count(*)::integer AS pending_offsets
                    FROM pgbroker_internal.transaction_offsets WHERE transactional_id = x.transactional_id) o;
COMMENT ON COLUMN pgbroker.transactions.last_used_at IS 'Time of the last decision or initialisation. An id that is idle for transactional.id.expiration.ms is removed.';
