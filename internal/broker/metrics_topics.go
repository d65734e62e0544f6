package broker

import (
	"slices"
)

// Series of partitions. Names of the first block are Kafka's through the JMX exporter's rules, of the second
// kafka_exporter's, of the third our own.
var (
	seriesLogSize     = gauge("kafka_log_log_size", "Bytes of the log.", "topic", "partition")
	seriesLogSegments = gauge("kafka_log_log_numlogsegments", "Segments of the log.", "topic", "partition")
	seriesLogStart    = gauge("kafka_log_log_logstartoffset", "First offset of the log.", "topic", "partition")
	seriesLogEnd      = gauge("kafka_log_log_logendoffset", "Offset of the next record.", "topic", "partition")
	seriesReplicas    = gauge("kafka_cluster_partition_replicascount", "Replicas.", "topic", "partition")
	seriesInSync      = gauge("kafka_cluster_partition_insyncreplicascount", "Replicas in sync.", "topic", "partition")
	seriesUnder       = gauge("kafka_cluster_partition_underreplicated", "1 if a replica is not in sync.", "topic", "partition")
	seriesUnderMin    = gauge("kafka_cluster_partition_underminisr", "1 if fewer are in sync than acks=all needs.", "topic", "partition")
	seriesAtMin       = gauge("kafka_cluster_partition_atminisr", "1 if just as many are in sync as acks=all needs.", "topic", "partition")
	seriesStableLag   = gauge("kafka_cluster_partition_laststableoffsetlag", "High watermark minus last stable offset.", "topic", "partition")

	seriesCurrentOffset = gauge("kafka_topic_partition_current_offset", "High watermark.", "topic", "partition")
	seriesOldestOffset  = gauge("kafka_topic_partition_oldest_offset", "First offset of the log.", "topic", "partition")
	seriesLeader        = gauge("kafka_topic_partition_leader", "Broker id of the leader, -1 none.", "topic", "partition")
	seriesReplicasE     = gauge("kafka_topic_partition_replicas", "Replicas.", "topic", "partition")
	seriesInSyncE       = gauge("kafka_topic_partition_in_sync_replica", "Replicas in sync.", "topic", "partition")
	seriesPreferred     = gauge("kafka_topic_partition_leader_is_preferred", "1 if the first replica leads.", "topic", "partition")
	seriesUnderE        = gauge("kafka_topic_partition_under_replicated_partition", "1 if a replica is not in sync.", "topic", "partition")
	seriesPartitions    = gauge("kafka_topic_partitions", "Partitions.", "topic")

	seriesOffset    = gauge("pgbroker_partition_offset", "The log's offsets: start, stable, high, durable, end.", "topic", "partition", "kind")
	seriesLogFailed = gauge("pgbroker_log_failed", "1 if the log failed and answers errors until it is opened again.", "topic", "partition")

	seriesTopicSize     = gauge("kafka_log_log_size", "Bytes of the log.", "topic")
	seriesTopicSegments = gauge("kafka_log_log_numlogsegments", "Segments of the log.", "topic")
)

// Series of the whole broker.
var (
	seriesLeaderCount    = gauge("kafka_server_replicamanager_leadercount", "Partitions led by this broker.")
	seriesPartitionCount = gauge("kafka_server_replicamanager_partitioncount", "Partitions with a replica on this broker.")
	seriesUnderCount     = gauge("kafka_server_replicamanager_underreplicatedpartitions", "Led partitions with a replica that is not in sync.")
	seriesUnderMinCount  = gauge("kafka_server_replicamanager_underminisrpartitioncount", "Led partitions with fewer in sync than acks=all needs.")
	seriesAtMinCount     = gauge("kafka_server_replicamanager_atminisrpartitioncount", "Led partitions with just as many in sync as acks=all needs.")
	seriesOfflineCount   = gauge("kafka_server_replicamanager_offlinereplicacount", "Logs of this broker that failed or are missing.")
	seriesOfflineDirs    = gauge("kafka_log_logmanager_offlinelogdirectorycount", "1 if a log of the directory failed.")
	seriesShrinks        = counter("kafka_server_replicamanager_isrshrinks_total", "Always 0 with one broker.")
	seriesExpands        = counter("kafka_server_replicamanager_isrexpands_total", "Always 0 with one broker.")
	seriesTopicCount     = gauge("kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster.")
	seriesAllPartitions  = gauge("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster.")
	seriesOffline        = gauge("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions that nobody can serve.")
)

// partitionSums are the counts over all partitions.
type partitionSums struct{ all, led, under, underMin, atMin, offline, noLeader, dropped int }

func collectTopics(out sink, cat *catalog) {
	var sums partitionSums
	var rows []partitionRow
	for _, t := range cat.topics {
		out.put(seriesPartitions, float64(len(t.partitions)), t.name)
		whole := sums.all+len(t.partitions) <= maxPartitionSeries
		var size, segments int64
		for i, p := range t.partitions {
			v := viewPartition(t, p)
			sums.add(v)
			if whole {
				rows = append(rows, newPartitionRow(t.name, i, v))
			} else if v.log != nil {
				size += v.log.Size()
				segments += int64(v.log.Segments())
			}
		}
		if !whole {
			sums.dropped += len(t.partitions)
			out.put(seriesTopicSize, float64(size), t.name)
			out.put(seriesTopicSegments, float64(segments), t.name)
		}
	}
	collectPartitions(out, rows)
	sums.collect(out, len(cat.topics))
}

// partitionView is a partition at one moment.
type partitionView struct {
	*leadership
	failed                 bool
	under, underMin, atMin bool
}

func viewPartition(t *topic, p *partition) partitionView {
	v := partitionView{leadership: p.lead.Load()}
	if v.log == nil {
		return v
	}
	v.failed = v.log.Err() != nil
	inSync, need := len(v.row.ISR), min(t.effective.MinInsyncReplicas, len(v.row.Replicas))
	v.under, v.underMin, v.atMin = inSync < len(v.row.Replicas), inSync < need, inSync == need
	return v
}

func (s *partitionSums) add(v partitionView) {
	s.all++
	if v.log != nil {
		s.led++
	}
	s.under += int(flag(v.under))
	s.underMin += int(flag(v.underMin))
	s.atMin += int(flag(v.atMin))
	// One broker: what it does not lead is led by nobody.
	if v.log == nil || v.failed {
		s.offline++
		s.noLeader++
	}
}

func (s *partitionSums) collect(out sink, topics int) {
	out.put(seriesLeaderCount, float64(s.led))
	out.put(seriesPartitionCount, float64(s.all))
	out.put(seriesUnderCount, float64(s.under))
	out.put(seriesUnderMinCount, float64(s.underMin))
	out.put(seriesAtMinCount, float64(s.atMin))
	out.put(seriesOfflineCount, float64(s.offline))
	out.put(seriesOfflineDirs, flag(s.offline > 0))
	out.put(seriesShrinks, 0)
	out.put(seriesExpands, 0)
	out.put(seriesTopicCount, float64(topics))
	out.put(seriesAllPartitions, float64(s.all))
	out.put(seriesOffline, float64(s.noLeader))
	out.put(seriesDropped, float64(s.dropped))
}

// partitionValue is what one series says of a partition.
type partitionValue struct {
	of    series
	value float64
}

// values are the series of a partition that is led here, but for its offsets by kind.
func (v partitionView) values() [18]partitionValue {
	o, replicas, inSync := v.log.Offsets(), float64(len(v.row.Replicas)), float64(len(v.row.ISR))
	return [...]partitionValue{
		{seriesLogSize, float64(v.log.Size())},
		{seriesLogSegments, float64(v.log.Segments())},
		{seriesLogStart, float64(o.Start)},
		{seriesLogEnd, float64(o.End)},
		{seriesReplicas, replicas},
		{seriesInSync, inSync},
		{seriesUnder, flag(v.under)},
		{seriesUnderMin, flag(v.underMin)},
		{seriesAtMin, flag(v.atMin)},
		{seriesStableLag, float64(o.High - o.Stable)},
		{seriesCurrentOffset, float64(o.High)},
		{seriesOldestOffset, float64(o.Start)},
		{seriesLeader, float64(v.row.Leader)},
		{seriesReplicasE, replicas},
		{seriesInSyncE, inSync},
		{seriesPreferred, flag(slices.Index(v.row.Replicas, v.row.Leader) == 0)},
		{seriesUnderE, flag(v.under)},
		{seriesLogFailed, flag(v.failed)},
	}
}

// flag is 1 for true.
func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
