-- A committed offset is written again and again. Beside a snapshot that stays open its old versions cannot go; with room on
-- its page they stay one chain in place instead of becoming entries of three indexes, each of which every later commit
-- has to look at.
ALTER TABLE pgbroker_internal.group_offsets SET (fillfactor = 20);
