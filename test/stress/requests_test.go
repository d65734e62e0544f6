package stress

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// sampleRequests are whole frames of requests that are answered at once, late, or never while their client lives.
func sampleRequests(topic string) [][]byte {
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.MaxWaitMillis, fetch.MinBytes, fetch.MaxBytes = 12, 60_000, 1<<20, 1<<20
	fetch.SessionEpoch = -1
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic = topic
	for p := range int32(3) {
		fp := kmsg.NewFetchRequestTopicPartition()
		fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes = p, 0, 1<<20
		ft.Partitions = append(ft.Partitions, fp)
	}
	fetch.Topics = append(fetch.Topics, ft)

	produce := kmsg.NewPtrProduceRequest()
	produce.Version, produce.Acks, produce.TimeoutMillis = 9, -1, 1000
	pt := kmsg.NewProduceRequestTopic()
	pt.Topic = topic
	pp := kmsg.NewProduceRequestTopicPartition()
	pp.Records = make([]byte, 200<<10) // refused: not a batch
	pt.Partitions = append(pt.Partitions, pp)
	produce.Topics = append(produce.Topics, pt)

	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType = 3, "dying", "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 500, 500
	join.Protocols = append(join.Protocols, kmsg.JoinGroupRequestProtocol{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}})

	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 12

	list := kmsg.NewPtrListOffsetsRequest()
	list.Version, list.ReplicaID = 7, -1
	lt := kmsg.NewListOffsetsRequestTopic()
	lt.Topic = topic
	lt.Partitions = append(lt.Partitions, kmsg.ListOffsetsRequestTopicPartition{Timestamp: 1, CurrentLeaderEpoch: -1})
	list.Topics = append(list.Topics, lt)

	var frames [][]byte
	for _, r := range []kmsg.Request{fetch, produce, join, metadata, list} {
		frames = append(frames, frameOf(r))
	}
	return append(frames, append(frameOf(metadata), frames[0]...))
}

// frameOf is a request as it travels.
func frameOf(r kmsg.Request) []byte {
	var b []byte
	b = binary.BigEndian.AppendUint16(b, uint16(r.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(r.GetVersion()))
	b = binary.BigEndian.AppendUint32(b, 1)
	b = append(binary.BigEndian.AppendUint16(b, 5), "dying"...)
	if r.IsFlexible() {
		b = append(b, 0)
	}
	b = r.AppendTo(b)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}
