package differential

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// run is all scripts against one broker.
type run struct {
	address string
	port    int32
	base    int64 // see scope
	epoch   int32

	mu          sync.Mutex // guards the fields below
	sent        map[[2]int16]bool
	answered    map[[2]int16]bool
	codes       map[int16]int
	transcripts map[string]string        // by script/case
	took        map[string]time.Duration // by script
}

func newRun(address string) *run {
	_, p, _ := net.SplitHostPort(address)
	port, _ := strconv.Atoi(p)
	return &run{address: address, port: int32(port), base: time.Now().Add(-time.Minute).UnixMilli(), sent: map[[2]int16]bool{},
		answered: map[[2]int16]bool{}, codes: map[int16]int{}, transcripts: map[string]string{}, took: map[string]time.Duration{}}
}

// all runs the scripts that go first, one after the other, wakes the coordinators, and runs the others, a few at a time.
func (r *run) all(ctx context.Context, scripts []*script) error {
	for _, s := range scripts {
		if s.first {
			if err := r.script(s); err != nil {
				return err
			}
		}
	}
	if err := r.warm(ctx); err != nil {
		return fmt.Errorf("wait for the coordinators: %w", err)
	}
	if err := r.findEpoch(); err != nil {
		return fmt.Errorf("the leader epoch of a new topic: %w", err)
	}
	slots, errs := make(chan struct{}, 8), make(chan error, len(scripts))
	var wg sync.WaitGroup
	for _, s := range scripts {
		if s.first {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs <- r.script(s)
		})
	}
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// player runs one script.
type player struct {
	*run
	script *script
	scope  scope
	render *renderer
	conns  map[string]*client
	lines  []string
	last   kmsg.Response
}

func (r *run) script(s *script) error {
	start := time.Now()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.took[s.name] = time.Since(start)
	}()
	p := &player{run: r, script: s, scope: scope{base: r.base, epoch: r.epoch, version: -1, vars: map[string]reflect.Value{}}, render: newRenderer(r.base, r.port, r.epoch, s.text)}
	p.render.onError = func(code int16) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.codes[code]++
	}
	for _, it := range s.items {
		if it.topic != nil {
			if err := p.create(it.topic); err != nil {
				return fmt.Errorf("%s: topic %v: %w", s.name, it.topic, err)
			}
			continue
		}
		for _, v := range it.versions {
			if err := p.playCase(it, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// create makes a topic whose id scripts and transcripts name after it.
func (p *player) create(words []string) error {
	id, err := p.topic(words)
	p.scope.vars["id."+words[0]] = reflect.ValueOf(id)
	p.render.names["topic-id "+hex.EncodeToString(id[:])] = "id-of-" + words[0]
	return err
}

func (p *player) playCase(it item, version int16) error {
	name := p.script.name + "/" + it.name
	if version >= 0 {
		name = fmt.Sprintf("%s@v%d", name, version)
	}
	p.scope.version, p.conns, p.lines, p.last = version, map[string]*client{}, nil, nil
	defer func() {
		for _, c := range p.conns {
			_ = c.conn.Close()
		}
	}()
	for _, st := range it.steps {
		if err := p.step(&st); err != nil {
			return fmt.Errorf("%s.txt:%d: case %s: %w", p.script.name, st.line, name, err)
		}
	}
	var states []string
	for _, name := range slices.Sorted(maps.Keys(p.conns)) {
		state := p.conns[name].alive()
		if len(p.conns) > 1 {
			state = name + " " + state
		}
		states = append(states, state)
	}
	p.say("%s", strings.Join(states, ", "))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.transcripts[name] = strings.Join(p.lines, "\n") + "\n"
	return nil
}

func (p *player) say(format string, args ...any) {
	p.lines = append(p.lines, fmt.Sprintf(format, args...))
}

func (p *player) conn(name string) (*client, error) {
	if c, ok := p.conns[name]; ok {
		return c, nil
	}
	c, err := dial(p.address)
	if err == nil {
		p.conns[name] = c
	}
	return c, err
}

// step runs a line of a case. Its errors are mistakes in the script; what the broker does is in the transcript.
func (p *player) step(st *step) error {
	switch st.verb {
	case "let":
		return p.let(st.words)
	case "topic":
		words := slices.Clone(st.words)
		words[0] = p.scope.expand(words[0])
		return p.create(words)
	case "close":
		if c, ok := p.conns[st.conn]; ok {
			_ = c.conn.Close()
			delete(p.conns, st.conn)
		}
		return nil
	}
	c, err := p.conn(st.conn)
	if err != nil {
		return err
	}
	switch st.verb {
	case "recv":
		p.receive(st.conn, c)
		return nil
	case "quiet":
		select {
		case f, ok := <-c.frames:
			p.say("%s: not quiet: %d bytes, open %v", st.conn, len(f), ok)
		case <-time.After(150 * time.Millisecond):
			p.say("%s: no answer yet", st.conn)
		}
		return nil
	case "raw":
		b, err := hex.DecodeString(strings.Join(st.words, ""))
		_, _ = c.conn.Write(b)
		p.say("%d raw bytes", len(b))
		return err
	}
	return p.request(st, c)
}

func (p *player) request(st *step, c *client) error {
	body, err := parseValue(st.body)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		req := kmsg.RequestForKey(st.key)
		if req.SetVersion(st.version); st.version == -1 {
			req.SetVersion(p.scope.version)
		}
		if err := p.scope.setStruct(reflect.ValueOf(req).Elem(), body); err != nil {
			return err
		}
		frame, due, err := c.frame(&st.request, req)
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.sent[[2]int16{st.key, req.GetVersion()}] = true
		p.mu.Unlock()
		_, _ = c.conn.Write(frame) // a closed connection is seen when the answer is due
		line := fmt.Sprintf("%s v%d", kmsg.NameForKey(st.key), req.GetVersion())
		if st.conn != "a" {
			line = st.conn + ": " + line
		}
		before := len(p.lines)
		p.say("%s", line)
		if st.noanswer {
			return nil
		}
		if c.pending = append(c.pending, due); st.send {
			return nil
		}
		p.receive("", c)
		if st.await == "" || strings.Contains(strings.Join(p.lines[before:], "\n"), p.scope.expand(st.await)) || time.Now().After(deadline) {
			return nil
		}
		p.lines = p.lines[:before]
	}
}

// receive writes the answer to the oldest request of a connection. A name is said before an answer that comes by itself.
func (p *player) receive(name string, c *client) {
	if name != "" {
		p.say("%s: answer", name)
	}
	due, raw, err := c.receive()
	if err != nil {
		p.say("  %v", err)
		return
	}
	p.mu.Lock()
	p.answered[[2]int16{due.resp.Key(), due.resp.GetVersion()}] = true
	p.mu.Unlock()
	if due.wait >= 300*time.Millisecond { // anything less may be over before a busy machine answers
		if time.Since(due.sent) < due.wait {
			p.say("  (before the max wait)")
		} else {
			p.say("  (after the max wait)")
		}
	}
	p.last = due.resp
	p.lines = append(p.lines, p.render.response(due.resp, raw)...)
}

func (p *player) let(words []string) error {
	if len(words) != 3 || words[1] != "=" {
		return fmt.Errorf("let NAME = Path")
	}
	if p.last == nil {
		return fmt.Errorf("let %s: there is no answer", words[0])
	}
	v := reflect.ValueOf(p.last).Elem()
	for _, part := range strings.Split(words[2], ".") {
		if i, err := strconv.Atoi(part); err == nil {
			if v.Kind() != reflect.Slice || i >= v.Len() {
				return fmt.Errorf("let %s: no element %d", words[0], i)
			}
			v = v.Index(i)
			continue
		}
		if v = v.FieldByName(part); !v.IsValid() {
			return fmt.Errorf("let %s: no field %s", words[0], part)
		}
	}
	p.scope.vars[words[0]] = v
	return nil
}
