package meta

import "hash/fnv"

// ShardOf is the coordinator shard of a group or transactional id: FNV-1a 32 mod 64, fixed for ever.
func ShardOf(key string) int16 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int16(h.Sum32() % Shards)
}
