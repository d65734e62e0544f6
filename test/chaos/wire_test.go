package chaos

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire is a connection on which one request at a time is sent, exactly once: what is repeated, and when, is its user's
// choice.
type wire struct {
	conn   net.Conn
	number int32
	dead   bool
}

// requestLimit bounds one request with its answer.
const requestLimit = 15 * time.Second

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("chaos"))

func dialWire(address string) (*wire, error) {
	c, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err != nil {
		return nil, err
	}
	return &wire{conn: c}, nil
}

func (w *wire) close() {
	if w != nil {
		w.dead = true
		_ = w.conn.Close()
	}
}

// ask sends a request and reads its answer. After an error the connection is closed.
func (w *wire) ask(request kmsg.Request) (kmsg.Response, error) {
	w.number++
	_ = w.conn.SetDeadline(time.Now().Add(requestLimit))
	response, err := w.exchange(request)
	if err != nil {
		w.close()
		return nil, fmt.Errorf("%s: %w", kmsg.NameForKey(request.Key()), err)
	}
	return response, nil
}

func (w *wire) exchange(request kmsg.Request) (kmsg.Response, error) {
	if _, err := w.conn.Write(formatter.AppendRequest(nil, request, w.number)); err != nil {
		return nil, err
	}
	var length [4]byte
	if _, err := io.ReadFull(w.conn, length[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(w.conn, body); err != nil {
		return nil, err
	}
	header := 4
	if request.IsFlexible() && request.Key() != kmsg.ApiVersions.Int16() {
		header++ // no tags
	}
	if len(body) < header || binary.BigEndian.Uint32(body) != uint32(w.number) {
		return nil, fmt.Errorf("the answer is not to request %d", w.number)
	}
	response := request.ResponseKind()
	response.SetVersion(request.GetVersion())
	return response, response.ReadFrom(body[header:])
}

// line is a wire that is dialed again when it is needed and broken.
type line struct {
	address string
	wire    *wire
}

func (l *line) ask(request kmsg.Request) (kmsg.Response, error) {
	if l.wire == nil || l.wire.dead {
		w, err := dialWire(l.address)
		if err != nil {
			return nil, err
		}
		l.wire = w
	}
	return l.wire.ask(request)
}

func (l *line) close() { l.wire.close() }
