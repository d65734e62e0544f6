package wire

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// uncharged is the length up to which a request is decoded without asking the budget: most are shorter, and the
// worst of them decodes to less than half a megabyte.
const uncharged = 4 << 10

// tooRichError is a request that could decode to more than all memory for requests.
type tooRichError struct {
	name       string
	version    int16
	structure  int64
	worst, max int64
}

func (e *tooRichError) Error() string {
	return fmt.Sprintf("%s v%d: %d bytes of structure could take %d bytes of memory, more than queued.max.request.bytes=%d",
		e.name, e.version, e.structure, e.worst, e.max)
}

// decode turns the body of p into its message. Bytes after the message are ignored, as Kafka does.
//
// Memory for the worst that the body could become is taken from the budget first, and what it did not become is
// given back after, so that a small hostile frame cannot use more than the limit.
func (p *pending) decode(ctx context.Context) error {
	rt, budget := p.route, &p.conn.srv.queued
	structure, charged := int64(len(p.body)), int64(0)
	if structure > uncharged && rt.Key == int16(kmsg.Produce) {
		structure -= recordBytes(p.body, p.Version)
	}
	if structure > uncharged {
		charged = structure * rt.weights[p.Version-rt.Min]
		if charged > budget.max {
			return &tooRichError{rt.name, p.Version, structure, charged, budget.max}
		}
		if err := budget.take(ctx, &p.frame.lease, charged, p.conn.flush); err != nil {
			return &goneError{err}
		}
	}
	msg, err := rt.decode(p.Version, p.body)
	if charged > 0 {
		kept := int64(0)
		if err == nil {
			kept = rt.footprint(msg)
		}
		p.frame.lease.shrink(charged - min(kept, charged))
	}
	if err != nil {
		return err
	}
	p.Body, p.name = msg, requestName(rt, msg)
	return nil
}

// decode reads a body. Byte slices of the result point into it.
func (rt *route) decode(version int16, body []byte) (msg kmsg.Request, err error) {
	// The codec does not panic on any input that the fuzzer found. Should it, one client loses its connection.
	defer func() {
		if p := recover(); p != nil {
			msg, err = nil, fmt.Errorf("decode %s v%d: the codec panicked: %v", rt.name, version, p)
		}
	}()
	msg = kmsg.RequestForKey(rt.Key)
	msg.SetVersion(version)
	if err := msg.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("decode %s v%d of %d bytes: %w", rt.name, version, len(body), err)
	}
	return msg, nil
}

// recordBytes adds up the records of a Produce request of version 3 to 13, without decoding it: they are most of
// it, and stay in the frame. It stops at what it does not understand, which the codec will refuse.
func recordBytes(body []byte, version int16) (n int64) {
	w := walker{b: body, flexible: version >= 9}
	w.bytes(w.length16()) // transactional id
	w.bytes(2 + 4)        // acks, timeout
	for topics := w.count(); topics > 0 && !w.bad; topics-- {
		if version >= 13 {
			w.bytes(16)
		} else {
			w.bytes(w.length16())
		}
		for partitions := w.count(); partitions > 0 && !w.bad; partitions-- {
			w.bytes(4)
			if l := w.count(); l > 0 && w.bytes(l) {
				n += l
			}
			w.tags()
		}
		w.tags()
	}
	return n
}

// walker steps over a body.
type walker struct {
	b        []byte
	flexible bool
	bad      bool
}

func (w *walker) bytes(n int64) bool {
	if n > int64(len(w.b)) {
		w.bad, w.b = true, nil
		return false
	}
	if n > 0 {
		w.b = w.b[n:]
	}
	return true
}

// count reads the length of a list or of bytes, -1 or less for null.
func (w *walker) count() int64 {
	if w.flexible {
		return w.compact()
	}
	b := w.b
	if !w.bytes(4) {
		return 0
	}
	return int64(int32(binary.BigEndian.Uint32(b)))
}

// length16 reads the length of a string.
func (w *walker) length16() int64 {
	if w.flexible {
		return w.compact()
	}
	b := w.b
	if !w.bytes(2) {
		return 0
	}
	return int64(int16(binary.BigEndian.Uint16(b)))
}

func (w *walker) compact() int64 {
	v, rest, ok := uvarint(w.b)
	if !ok {
		w.bad, w.b = true, nil
		return 0
	}
	w.b = rest
	return int64(v) - 1
}

func (w *walker) tags() {
	if !w.flexible || w.bad {
		return
	}
	rest, err := skipTags(w.b)
	w.b, w.bad = rest, err != nil
}
