package floor

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// frameLimitBytes bounds a request.
const frameLimitBytes = 64 << 20

// Server is a running floor.
type Server struct {
	dir  string
	sync bool

	mu     sync.Mutex
	topics map[string][]*log
	nextID int64 // of producers
}

// versions are the requests it knows and their versions: the newest that carry no topic ids, since it has none.
var versions = []struct{ key, min, max int16 }{
	{0, 3, 9}, {1, 4, 11}, {2, 1, 5}, {3, 1, 8}, {18, 0, 3}, {19, 2, 4}, {20, 1, 3}, {22, 0, 2},
}

// Serve answers on the TCP listener until ctx ends. Its files go to dir, which must exist.
func Serve(ctx context.Context, l net.Listener, dir string, sync bool) error {
	s := &Server{dir: dir, sync: sync, topics: map[string][]*log{}}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			c := &connection{conn.(*net.TCPConn), map[*log]*os.File{}}
			end := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer end()
			defer c.close()
			if err := s.answer(c); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "floor:", err)
			}
		}()
	}
}

// answer answers requests in order. Answers to produces leave together when the socket's buffer is drained.
func (s *Server) answer(conn *connection) error {
	in := bufio.NewReaderSize(conn, 256<<10)
	var frame, out []byte
	var touched []*log
	flush := func() error {
		for i, l := range touched {
			if s.sync && !contains(touched[:i], l) {
				if err := l.sync(); err != nil {
					return err
				}
			}
		}
		for _, l := range touched {
			l.show()
		}
		touched = touched[:0]
		_, err := conn.Write(out)
		out = out[:0]
		return err
	}
	for {
		if len(out) > 0 && in.Buffered() < 4 {
			if err := flush(); err != nil {
				return err
			}
		}
		var size [4]byte
		if _, err := io.ReadFull(in, size[:]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		n := int(binary.BigEndian.Uint32(size[:]))
		if n < 8 || n > frameLimitBytes {
			return fmt.Errorf("a request of %d bytes", n)
		}
		if cap(frame) < n {
			frame = make([]byte, n)
		}
		frame = frame[:n]
		if len(out) > 0 && in.Buffered() < n { // do not let answers wait for bytes that are still on their way
			if err := flush(); err != nil {
				return err
			}
		}
		if _, err := io.ReadFull(in, frame); err != nil {
			return err
		}
		req, id, err := decode(frame)
		if err != nil {
			return err
		}
		switch r := req.(type) {
		case *kmsg.FetchRequest:
			if err := flush(); err != nil {
				return err
			}
			if err := s.fetch(conn, id, r); err != nil {
				return err
			}
		case *kmsg.ProduceRequest:
			resp, logs := s.produce(r)
			touched = append(touched, logs...)
			if r.Acks != 0 {
				out = encode(out, id, resp)
			}
		default:
			resp, err := s.other(conn, req)
			if err != nil {
				return err
			}
			out = encode(out, id, resp)
		}
	}
}

func contains(logs []*log, l *log) bool {
	for _, o := range logs {
		if o == l {
			return true
		}
	}
	return false
}

// decode reads a request; its records stay parts of the frame.
func decode(frame []byte) (kmsg.Request, int32, error) {
	r := kbin.Reader{Src: frame}
	key, version, id := r.Int16(), r.Int16(), r.Int32()
	known := false
	for _, v := range versions {
		known = known || v.key == key && v.min <= version && version <= v.max
	}
	if !known && key != 18 {
		return nil, 0, fmt.Errorf("request %d version %d is not known here", key, version)
	}
	req := kmsg.RequestForKey(key)
	if !known {
		version = 0 // ApiVersions of a newer client: answered in the oldest form
	}
	req.SetVersion(version)
	r.NullableString() // client id
	if req.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if !known {
		return &unsupported{}, id, nil
	}
	return req, id, req.ReadFrom(r.Src)
}

// unsupported is an ApiVersions request in a version that is not known.
type unsupported struct{ kmsg.ApiVersionsRequest }

// encode appends a whole response frame.
func encode(out []byte, id int32, resp kmsg.Response) []byte {
	start := len(out)
	out = binary.BigEndian.AppendUint32(append(out, 0, 0, 0, 0), uint32(id))
	if resp.IsFlexible() && resp.Key() != 18 { // an ApiVersions answer has the old header, always (KIP-511)
		out = append(out, 0)
	}
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out[start:], uint32(len(out)-start-4))
	return out
}

func (s *Server) log(topic string, partition int32) *log {
	s.mu.Lock()
	defer s.mu.Unlock()
	if logs := s.topics[topic]; int(partition) < len(logs) && partition >= 0 {
		return logs[partition]
	}
	return nil
}
