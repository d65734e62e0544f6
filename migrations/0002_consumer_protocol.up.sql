-- Groups of the consumer protocol (KIP-848).

ALTER TABLE pgbroker_internal.consumer_groups
  ADD COLUMN assignment_epoch  integer NOT NULL DEFAULT 0,  -- of kind 'consumer': epoch that the targets are for; generation is the group's epoch
  ADD COLUMN subscription_hash bigint  NOT NULL DEFAULT 0;  -- of subscriptions and numbers of partitions that the epoch stands for

ALTER TABLE pgbroker_internal.group_members
  ADD COLUMN consumer jsonb;                                -- of kind 'consumer': {"epoch", "previous_epoch", "state", "topics", "regex", "assignor", "rack_id", "assigned", "revoking", "target"}; null: classic

COMMENT ON COLUMN pgbroker.groups.kind IS 'Group protocol: classic or consumer (KIP-848).';
COMMENT ON COLUMN pgbroker.groups.generation IS 'Generation: rises with every rebalance. Of kind consumer: the group''s epoch.';
