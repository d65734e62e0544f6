package floor

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Error codes of the protocol.
const (
	unknownServerError      = -1
	corruptMessage          = 2
	unknownTopicOrPartition = 3
	unsupportedVersion      = 35
	topicAlreadyExists      = 36
)

// produce appends the batches and returns the logs that grew.
func (s *Server) produce(req *kmsg.ProduceRequest) (kmsg.Response, []*log) {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	var logs []*log
	for _, t := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition = p.Partition
			if l := s.log(t.Topic, p.Partition); l == nil {
				rp.ErrorCode = unknownTopicOrPartition
			} else if base, err := l.append(p.Records); err != nil {
				rp.ErrorCode = corruptMessage
			} else {
				rp.BaseOffset, rp.LogStartOffset = base, 0
				logs = append(logs, l)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, logs
}

// fetch answers at once when a partition has something, otherwise when the first one has or its time is over. The records go
// from file to socket by the kernel.
func (s *Server) fetch(conn *connection, id int32, req *kmsg.FetchRequest) error {
	deadline := time.NewTimer(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	defer deadline.Stop()
	for {
		head, pieces, grown := s.plan(req)
		if len(pieces) > 0 || grown == nil {
			return send(conn, id, head, pieces)
		}
		select {
		case <-grown:
		case <-deadline.C:
			return send(conn, id, head, nil)
		}
	}
}

// piece is record data behind the bytes of the answer up to after.
type piece struct {
	after    int
	log      *log
	at, size int64
}

// plan encodes an answer without its records. grown is the channel of one of its partitions: the clients of the benchmark
// wait on one partition each.
func (s *Server) plan(req *kmsg.FetchRequest) (head []byte, pieces []piece, grown <-chan struct{}) {
	head = binary.BigEndian.AppendUint32(head, 0) // throttle time
	if req.Version >= 7 {
		head = append(head, 0, 0, 0, 0, 0, 0) // error code, session id: no sessions
	}
	budget := int64(req.MaxBytes)
	head = binary.BigEndian.AppendUint32(head, uint32(len(req.Topics)))
	for _, t := range req.Topics {
		head = binary.BigEndian.AppendUint16(head, uint16(len(t.Topic)))
		head = append(head, t.Topic...)
		head = binary.BigEndian.AppendUint32(head, uint32(len(t.Partitions)))
		for _, p := range t.Partitions {
			var at, size, next int64
			var code int16
			l := s.log(t.Topic, p.Partition)
			if l == nil {
				code = unknownTopicOrPartition
			} else {
				at, size, next, grown = l.find(p.FetchOffset, min(int64(p.PartitionMaxBytes), max(budget, 0)))
				if size > budget && len(pieces) > 0 {
					size = 0
				}
			}
			head = binary.BigEndian.AppendUint32(head, uint32(p.Partition))
			head = binary.BigEndian.AppendUint16(head, uint16(code))
			head = binary.BigEndian.AppendUint64(head, uint64(next)) // high watermark
			head = binary.BigEndian.AppendUint64(head, uint64(next)) // last stable offset
			if req.Version >= 5 {
				head = binary.BigEndian.AppendUint64(head, 0) // log start offset
			}
			head = binary.BigEndian.AppendUint32(head, 0xffffffff) // no aborted transactions
			if req.Version >= 11 {
				head = binary.BigEndian.AppendUint32(head, 0xffffffff) // no preferred replica
			}
			head = binary.BigEndian.AppendUint32(head, uint32(size))
			if size > 0 {
				pieces = append(pieces, piece{len(head), l, at, size})
				budget -= size
			}
		}
	}
	return head, pieces, grown
}

// connection is a client's, with its own handles of the files that it reads: sendfile moves a handle's position.
type connection struct {
	*net.TCPConn
	files map[*log]*os.File
}

func (c *connection) file(l *log) (*os.File, error) {
	if f := c.files[l]; f != nil {
		return f, nil
	}
	f, err := os.Open(l.file.Name())
	if err == nil {
		c.files[l] = f
	}
	return f, err
}

func (c *connection) close() {
	for _, f := range c.files {
		_ = f.Close()
	}
	_ = c.TCPConn.Close()
}

// send writes the answer: what is around the records from memory, the records from their files.
func send(conn *connection, id int32, head []byte, pieces []piece) error {
	total := int64(len(head)) + 4
	for _, p := range pieces {
		total += p.size
	}
	first := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(total)), uint32(id))
	written := 0
	for _, p := range pieces {
		if _, err := conn.Write(append(first, head[written:p.after]...)); err != nil {
			return err
		}
		first, written = nil, p.after
		f, err := conn.file(p.log)
		if err != nil {
			return err
		}
		if _, err := f.Seek(p.at, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(conn, f, p.size); err != nil { // sendfile(2), as long as it is a TCP connection and a file
			return err
		}
	}
	if written < len(head) || first != nil {
		_, err := conn.Write(append(first, head[written:]...))
		return err
	}
	return nil
}

// other answers what a client asks before and after it moves records.
func (s *Server) other(conn net.Conn, req kmsg.Request) (kmsg.Response, error) {
	switch r := req.(type) {
	case *unsupported, *kmsg.ApiVersionsRequest:
		return apiVersions(req), nil
	case *kmsg.MetadataRequest:
		return s.metadata(conn, r), nil
	case *kmsg.InitProducerIDRequest:
		resp := r.ResponseKind().(*kmsg.InitProducerIDResponse)
		s.mu.Lock()
		s.nextID++
		resp.ProducerID = s.nextID
		s.mu.Unlock()
		return resp, nil
	case *kmsg.CreateTopicsRequest:
		return s.createTopics(r), nil
	case *kmsg.DeleteTopicsRequest:
		return s.deleteTopics(r), nil
	case *kmsg.ListOffsetsRequest:
		return s.listOffsets(r), nil
	}
	return nil, fmt.Errorf("request %d has no answer here", req.Key())
}

func apiVersions(req kmsg.Request) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	if _, newer := req.(*unsupported); newer {
		resp.ErrorCode = unsupportedVersion
	} else {
		resp.SetVersion(req.GetVersion())
	}
	for _, v := range versions {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = v.key, v.min, v.max
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	return resp
}

func (s *Server) metadata(conn net.Conn, req *kmsg.MetadataRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	addr := conn.LocalAddr().(*net.TCPAddr)
	broker := kmsg.NewMetadataResponseBroker()
	broker.NodeID, broker.Host, broker.Port = 1, addr.IP.String(), int32(addr.Port)
	resp.Brokers, resp.ControllerID = append(resp.Brokers, broker), 1
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, want := range req.Topics {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic = want.Topic
		logs, known := s.topics[*want.Topic]
		if !known {
			t.ErrorCode = unknownTopicOrPartition
		}
		for i := range logs {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader, p.Replicas, p.ISR = int32(i), 1, []int32{1}, []int32{1}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (s *Server) createTopics(req *kmsg.CreateTopicsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range req.Topics {
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic = t.Topic
		if _, there := s.topics[t.Topic]; there {
			rt.ErrorCode = topicAlreadyExists
		} else {
			logs := make([]*log, 0, t.NumPartitions)
			for p := range t.NumPartitions {
				l, err := openLog(s.dir, t.Topic, p)
				if err != nil {
					rt.ErrorCode = unknownServerError
					break
				}
				logs = append(logs, l)
			}
			s.topics[t.Topic] = logs
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (s *Server) listOffsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.Timestamp, rp.Offset = p.Partition, -1, 0
			if l := s.log(t.Topic, p.Partition); l == nil {
				rp.ErrorCode = unknownTopicOrPartition
			} else if p.Timestamp != -2 { // -2: the beginning, which is 0; otherwise the end
				_, _, rp.Offset, _ = l.find(1<<62, 0)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (s *Server) deleteTopics(req *kmsg.DeleteTopicsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range req.TopicNames {
		rt := kmsg.NewDeleteTopicsResponseTopic()
		rt.Topic = kmsg.StringPtr(name)
		logs, known := s.topics[name]
		if !known {
			rt.ErrorCode = unknownTopicOrPartition
		}
		for _, l := range logs {
			if l.remove() != nil {
				rt.ErrorCode = unknownServerError
			}
		}
		delete(s.topics, name)
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}
