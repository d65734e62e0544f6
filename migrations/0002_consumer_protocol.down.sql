-- Groups of the consumer protocol lose their members, as after a long absence of all of them; offsets stay.
DELETE FROM pgbroker_internal.group_members WHERE consumer IS NOT NULL;
UPDATE pgbroker_internal.consumer_groups SET kind = 'classic', protocol = '', leader = '' WHERE kind = 'consumer';

ALTER TABLE pgbroker_internal.group_members
  DROP COLUMN consumer;
ALTER TABLE pgbroker_internal.consumer_groups
  DROP COLUMN assignment_epoch,
  DROP COLUMN subscription_hash;

COMMENT ON COLUMN pgbroker.groups.kind IS 'Group protocol: classic.';
COMMENT ON COLUMN pgbroker.groups.generation IS 'Generation: rises with every rebalance.';
