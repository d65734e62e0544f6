package differential

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// answerLimit is how long an answer that is due may take.
const answerLimit = 15 * time.Second

// client is a connection whose frames are read as they come.
type client struct {
	conn    net.Conn
	frames  chan []byte // closed when the connection ended
	last    int32       // the last correlation id
	pending []pending
}

// pending is a request whose answer is due.
type pending struct {
	correlation int32
	resp        kmsg.Response
	flexible    bool // the header of the answer
	sent        time.Time
	wait        time.Duration // that the request allows; 0 none
}

func dial(address string) (*client, error) {
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn, frames: make(chan []byte, 100)}
	go func() {
		defer close(c.frames)
		for {
			var size [4]byte
			if _, err := io.ReadFull(conn, size[:]); err != nil {
				return
			}
			n := binary.BigEndian.Uint32(size[:])
			if n > 64<<20 {
				return
			}
			frame := make([]byte, n)
			if _, err := io.ReadFull(conn, frame); err != nil {
				return
			}
			c.frames <- frame
		}
	}()
	return c, nil
}

// frame is a request with its header and size. It also says what answer to expect.
func (c *client) frame(r *request, req kmsg.Request) ([]byte, pending, error) {
	c.last++
	key, version := or(r.header.key, req.Key()), or(r.header.version, req.GetVersion())
	b := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(c.last))
	switch id := or(r.client, "differential"); id {
	case "null":
		b = append(b, 0xff, 0xff)
	default:
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(id))), id...)
	}
	if req.IsFlexible() {
		b = append(b, 0)
	}
	b = req.AppendTo(b)
	extra, err := hex.DecodeString(r.append)
	if err != nil || r.cut > len(b)-4 {
		return nil, pending{}, fmt.Errorf("cut=%d append=%s: %w", r.cut, r.append, err)
	}
	b = append(b[:len(b)-r.cut], extra...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))

	p := pending{correlation: c.last, resp: req.ResponseKind(), sent: time.Now()}
	p.resp.SetVersion(version)
	if key == 18 && version > req.MaxVersion() {
		p.resp.SetVersion(0) // KIP-511
	}
	p.flexible = p.resp.IsFlexible() && key != 18 // KIP-511: the header of this one stays as it was
	if f := reflect.ValueOf(req).Elem().FieldByName("MaxWaitMillis"); f.IsValid() {
		p.wait = time.Duration(f.Int()) * time.Millisecond
	}
	return b, p, nil
}

var errClosed = errors.New("closed")

// receive waits for the next frame and checks whose answer it is.
func (c *client) receive() (p pending, raw []byte, err error) {
	if len(c.pending) == 0 {
		return p, nil, fmt.Errorf("no answer is due")
	}
	p, c.pending = c.pending[0], c.pending[1:]
	timer := time.NewTimer(answerLimit)
	defer timer.Stop()
	var frame []byte
	var ok bool
	select {
	case frame, ok = <-c.frames:
	case <-timer.C:
		return p, nil, fmt.Errorf("no answer within %s", answerLimit)
	}
	if !ok {
		return p, nil, errClosed
	}
	if len(frame) < 4 || int32(binary.BigEndian.Uint32(frame)) != p.correlation {
		return p, nil, fmt.Errorf("an answer to another request")
	}
	raw = frame[4:]
	if p.flexible {
		if len(raw) == 0 || raw[0] != 0 {
			return p, nil, fmt.Errorf("a header without its empty tagged fields")
		}
		raw = raw[1:]
	}
	if err := p.resp.ReadFrom(raw); err != nil {
		return p, raw, fmt.Errorf("an answer of %d bytes that is not one of version %d: %w", len(raw), p.resp.GetVersion(), err)
	}
	return p, raw, nil
}

// alive says whether the connection still answers.
func (c *client) alive() string {
	for len(c.pending) > 0 {
		if _, _, err := c.receive(); err != nil {
			return "an answer is still due: " + err.Error()
		}
	}
	frame, p, err := c.frame(&request{}, kmsg.NewPtrApiVersionsRequest())
	if err != nil {
		return err.Error()
	}
	_, _ = c.conn.Write(frame) // a closed connection is seen below
	c.pending = append(c.pending, p)
	switch _, _, err := c.receive(); {
	case err == nil:
		return "open"
	case errors.Is(err, errClosed):
		return "closed"
	default:
		return err.Error()
	}
}
