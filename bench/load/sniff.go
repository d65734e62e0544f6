package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// concurrentTransactions is the error code CONCURRENT_TRANSACTIONS.
const concurrentTransactions = 51

// sniffer watches connections for answers that carry CONCURRENT_TRANSACTIONS. A client retries them by itself and tells
// nobody, so they are counted where they cannot hide.
type sniffer struct {
	concurrent atomic.Int64
	mu         sync.Mutex
	err        error // the first answer that could not be read: the count would be too small
}

// dial is a kgo dialer whose connections are watched.
func (s *sniffer) dial(ctx context.Context, network, host string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	return &sniffed{Conn: conn, sniffer: s, asked: map[int32]question{}}, nil
}

func (s *sniffer) broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *sniffer) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// question is a request whose answer is watched for.
type question struct{ key, version int16 }

// sniffed is a connection. kgo writes a request in one call (the header is then whole) and reads an answer's size and body
// in calls of its own choice.
type sniffed struct {
	net.Conn
	sniffer *sniffer
	mu      sync.Mutex // guards asked: one goroutine writes, another reads
	asked   map[int32]question
	in      []byte // what was read of a frame that is not whole yet
}

func (c *sniffed) Write(b []byte) (int, error) {
	// size int32, api key int16, version int16, correlation id int32 (KIP-482 request headers v1 and v2)
	if len(b) >= 12 && int(binary.BigEndian.Uint32(b)) == len(b)-4 {
		q := question{int16(binary.BigEndian.Uint16(b[4:])), int16(binary.BigEndian.Uint16(b[6:]))}
		switch q.key {
		case 0, 22, 24, 25, 26, 28: // Produce, InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit
			c.mu.Lock()
			c.asked[int32(binary.BigEndian.Uint32(b[8:]))] = q
			c.mu.Unlock()
		}
	} else {
		c.sniffer.fail(fmt.Errorf("a request was written in pieces: the answers to it cannot be told"))
	}
	return c.Conn.Write(b)
}

func (c *sniffed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.in = append(c.in, b[:n]...)
	for len(c.in) >= 4 {
		size := int(binary.BigEndian.Uint32(c.in))
		if len(c.in) < 4+size {
			break
		}
		c.answer(c.in[4 : 4+size])
		c.in = append(c.in[:0], c.in[4+size:]...)
	}
	return n, err
}

// answer looks at one response.
func (c *sniffed) answer(frame []byte) {
	if len(frame) < 4 {
		return
	}
	id := int32(binary.BigEndian.Uint32(frame))
	c.mu.Lock()
	q, asked := c.asked[id]
	delete(c.asked, id)
	c.mu.Unlock()
	if !asked {
		return
	}
	resp := kmsg.ResponseForKey(q.key)
	resp.SetVersion(q.version)
	body := frame[4:]
	if resp.IsFlexible() && len(body) > 0 {
		body = body[1:] // the header's tagged fields: none in any answer so far
	}
	if err := resp.ReadFrom(body); err != nil {
		c.sniffer.fail(fmt.Errorf("answer to request %d version %d: %w", q.key, q.version, err))
		return
	}
	for _, code := range codes(resp) {
		if code == concurrentTransactions {
			c.sniffer.concurrent.Add(1)
			return
		}
	}
}

// codes are the error codes of an answer.
func codes(resp kmsg.Response) []int16 {
	var all []int16
	switch r := resp.(type) {
	case *kmsg.ProduceResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				all = append(all, p.ErrorCode)
			}
		}
	case *kmsg.InitProducerIDResponse:
		all = append(all, r.ErrorCode)
	case *kmsg.AddPartitionsToTxnResponse:
		all = append(all, r.ErrorCode)
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				all = append(all, p.ErrorCode)
			}
		}
		for _, txn := range r.Transactions {
			for _, t := range txn.Topics {
				for _, p := range t.Partitions {
					all = append(all, p.ErrorCode)
				}
			}
		}
	case *kmsg.AddOffsetsToTxnResponse:
		all = append(all, r.ErrorCode)
	case *kmsg.EndTxnResponse:
		all = append(all, r.ErrorCode)
	case *kmsg.TxnOffsetCommitResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				all = append(all, p.ErrorCode)
			}
		}
	}
	return all
}
