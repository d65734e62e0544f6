DROP VIEW pgbroker.transactions;
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
ALTER TABLE pgbroker_internal.transactions DROP COLUMN used_at;
