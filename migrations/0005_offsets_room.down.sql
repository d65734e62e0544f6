ALTER TABLE pgbroker_internal.group_offsets SET (fillfactor = 70);
