package differential

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// node is a parsed value: a word, a quoted text, a list, or fields, perhaps with the name of what they make.
type node struct {
	word   string
	quoted bool
	list   []node
	fields []field
	kind   byte // 'w', 'l' or 'f'
	maker  string
}

type field struct {
	name  string
	value node
}

// parseValue reads one value; nothing may follow it.
func parseValue(s string) (node, error) {
	p := &parser{s: s}
	n, err := p.value()
	if err == nil && p.peek() != 0 {
		err = fmt.Errorf("%q follows the value", p.s[p.i:])
	}
	return n, err
}

type parser struct {
	s string
	i int
}

func (p *parser) peek() byte {
	for p.i < len(p.s) && (unicode.IsSpace(rune(p.s[p.i])) || p.s[p.i] == ',') {
		p.i++
	}
	if p.i == len(p.s) {
		return 0
	}
	return p.s[p.i]
}

func (p *parser) value() (node, error) {
	switch p.peek() {
	case 0, ']', '}', ':':
		return node{}, fmt.Errorf("a value is missing at %q", p.s[p.i:])
	case '[':
		p.i++
		n := node{kind: 'l', list: []node{}}
		for p.peek() != ']' {
			v, err := p.value()
			if err != nil {
				return n, err
			}
			n.list = append(n.list, v)
		}
		p.i++
		return n, nil
	case '{':
		return p.fields("")
	case '"':
		quoted, err := strconv.QuotedPrefix(p.s[p.i:])
		if err != nil {
			return node{}, fmt.Errorf("a bad text at %q", p.s[p.i:])
		}
		p.i += len(quoted)
		text, err := strconv.Unquote(quoted)
		return node{kind: 'w', word: text, quoted: true}, err
	}
	w := p.word()
	if p.i < len(p.s) && p.s[p.i] == '{' {
		return p.fields(w)
	}
	return node{kind: 'w', word: w}, nil
}

func (p *parser) word() string {
	start := p.i
	for p.i < len(p.s) && !unicode.IsSpace(rune(p.s[p.i])) && !strings.ContainsRune(",:[]{}\"", rune(p.s[p.i])) {
		p.i++
	}
	return p.s[start:p.i]
}

func (p *parser) fields(maker string) (node, error) {
	p.i++
	n := node{kind: 'f', maker: maker}
	for p.peek() != '}' {
		name := p.word()
		if name == "" || p.peek() != ':' {
			return n, fmt.Errorf("a field name and : are missing at %q", p.s[p.i:])
		}
		p.i++
		v, err := p.value()
		if err != nil {
			return n, err
		}
		n.fields = append(n.fields, field{name, v})
	}
	p.i++
	return n, nil
}

// scope is what words may refer to.
type scope struct {
	base    int64 // milliseconds that T stands for
	epoch   int32 // the leader epoch that E stands for
	version int16
	vars    map[string]reflect.Value
}

// expand writes the version for $v.
func (s *scope) expand(word string) string {
	return strings.ReplaceAll(word, "$v", strconv.Itoa(int(s.version)))
}

// set stores a parsed value.
func (s *scope) set(to reflect.Value, n node) error {
	if name, ok := strings.CutPrefix(n.word, "$"); ok && !n.quoted && n.word != "$v" {
		v, found := s.vars[s.expand(name)]
		if !found {
			return fmt.Errorf("$%s is not known", name)
		}
		return assign(to, v)
	}
	switch to.Kind() {
	case reflect.Pointer:
		if n.isNull() {
			to.SetZero()
			return nil
		}
		to.Set(reflect.New(to.Type().Elem()))
		return s.set(to.Elem(), n)
	case reflect.Struct:
		return s.setStruct(to, n)
	case reflect.Slice:
		return s.setSlice(to, n)
	}
	if n.kind != 'w' {
		return fmt.Errorf("a %s cannot be a list or fields", to.Type())
	}
	return s.setWord(to, s.expand(n.word))
}

func (n node) isNull() bool { return n.kind == 'w' && n.word == "null" && !n.quoted }

// assign stores what an answer held, through pointers on either side.
func assign(to, v reflect.Value) error {
	for v.Kind() == reflect.Pointer && to.Kind() != reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if to.Kind() == reflect.Pointer && v.Kind() != reflect.Pointer {
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	if !v.CanConvert(to.Type()) {
		return fmt.Errorf("a %s cannot be a %s", v.Type(), to.Type())
	}
	to.Set(v.Convert(to.Type()))
	return nil
}

func (s *scope) setStruct(to reflect.Value, n node) error {
	if n.kind != 'f' {
		return fmt.Errorf("a %s needs fields", to.Type())
	}
	if d, ok := to.Addr().Interface().(interface{ Default() }); ok {
		d.Default()
	}
	for _, f := range n.fields {
		member := to.FieldByName(f.name)
		if !member.IsValid() {
			return fmt.Errorf("%s has no field %s", to.Type(), f.name)
		}
		if err := s.set(member, f.value); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

func (s *scope) setSlice(to reflect.Value, n node) error {
	if n.isNull() {
		to.SetZero()
		return nil
	}
	if to.Type().Elem().Kind() == reflect.Uint8 {
		b, err := s.bytes(n)
		to.SetBytes(b)
		return err
	}
	if n.kind != 'l' {
		return fmt.Errorf("a %s needs a list", to.Type())
	}
	to.Set(reflect.MakeSlice(to.Type(), len(n.list), len(n.list)))
	for i, v := range n.list {
		if err := s.set(to.Index(i), v); err != nil {
			return fmt.Errorf("%d: %w", i, err)
		}
	}
	return nil
}

// makers are the kmsg types that can be written where bytes are wanted.
var makers = map[string]func() interface{ AppendTo([]byte) []byte }{
	"ConsumerMemberMetadata": func() interface{ AppendTo([]byte) []byte } { return new(kmsg.ConsumerMemberMetadata) },
	"ConsumerMemberAssignment": func() interface{ AppendTo([]byte) []byte } {
		return new(kmsg.ConsumerMemberAssignment)
	},
}

func (s *scope) bytes(n node) ([]byte, error) {
	switch {
	case n.kind == 'l':
		var all []byte
		for _, part := range n.list {
			b, err := s.bytes(part)
			if err != nil {
				return nil, err
			}
			all = append(all, b...)
		}
		return all, nil
	case n.kind == 'f' && n.maker == "batch":
		spec := newBatchSpec(s.base)
		if err := s.set(reflect.ValueOf(&spec).Elem(), n); err != nil {
			return nil, err
		}
		return spec.encode()
	case n.kind == 'f':
		make, ok := makers[n.maker]
		if !ok {
			return nil, fmt.Errorf("bytes cannot be made by %q", n.maker)
		}
		m := make()
		if err := s.set(reflect.ValueOf(m).Elem(), n); err != nil {
			return nil, err
		}
		return m.AppendTo([]byte{}), nil
	}
	if digits, ok := strings.CutPrefix(n.word, "0x"); ok && !n.quoted {
		return hex.DecodeString(digits)
	}
	return []byte(repeated(s.expand(n.word))), nil
}

// repeated makes the word x*5 xxxxx.
func repeated(word string) string {
	if text, n, ok := strings.Cut(word, "*"); ok && text != "" {
		if times, err := strconv.Atoi(n); err == nil {
			return strings.Repeat(text, times)
		}
	}
	return word
}

func (s *scope) setWord(to reflect.Value, word string) error {
	switch to.Kind() {
	case reflect.String:
		to.SetString(repeated(word))
		return nil
	case reflect.Bool:
		b, err := strconv.ParseBool(word)
		to.SetBool(b)
		return err
	case reflect.Float64:
		f, err := strconv.ParseFloat(word, 64)
		to.SetFloat(f)
		return err
	case reflect.Array:
		if word == "zero" {
			to.SetZero()
			return nil
		}
		b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(word, "0x"), "-", ""))
		if err != nil || len(b) != to.Len() {
			return fmt.Errorf("%q is not an id", word)
		}
		reflect.Copy(to, reflect.ValueOf(b))
		return nil
	}
	base := int64(0)
	if word != "" && (word[0] == 'T' || word[0] == 'E') {
		if base = s.base; word[0] == 'E' {
			base = int64(s.epoch)
		}
		if word = strings.TrimPrefix(word[1:], "+"); word == "" {
			word = "0"
		}
	}
	if to.CanUint() {
		n, err := strconv.ParseUint(word, 0, to.Type().Bits())
		to.SetUint(n)
		return err
	}
	n, err := strconv.ParseInt(word, 0, 64)
	if err == nil && to.OverflowInt(n+base) {
		err = fmt.Errorf("%d is too large for %s", n+base, to.Type())
	}
	if err == nil {
		to.SetInt(n + base)
	}
	return err
}
