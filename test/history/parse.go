package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// maxLineBytes bounds a line that Parse accepts.
const maxLineBytes = 64 << 20

// Write writes a history, one operation a line.
func (h History) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	for i := range h.Ops {
		if err := enc.Encode(&h.Ops[i]); err != nil {
			return fmt.Errorf("write operation %d of a history: %w", i, err)
		}
	}
	return b.Flush()
}

// Parse reads what Write wrote.
func Parse(r io.Reader) (History, error) {
	var h History
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLineBytes)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var o Op
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return h, fmt.Errorf("line %d of a history: %w", n, err)
		}
		switch o.Type {
		case OK, Fail, Info:
		default:
			return h, fmt.Errorf("line %d of a history: type %q", n, o.Type)
		}
		if o.Complete < o.Invoke {
			return h, fmt.Errorf("line %d of a history: completed at %d, invoked at %d", n, o.Complete, o.Invoke)
		}
		h.Ops = append(h.Ops, o)
	}
	return h, lines.Err()
}
