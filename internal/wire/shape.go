package wire

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// shape is a type reduced to the parts whose memory depends on the input, so that a decoded request is measured in
// a few nanoseconds an element. Byte slices do not count: they point into the frame.
type shape struct {
	kind   reflect.Kind
	tags   bool
	size   int64 // of a slice's or pointer's element
	elem   *shape
	fields []shapeField
}

type shapeField struct {
	index int
	shape *shape
}

// shapeOf returns nil for a type of fixed size.
func shapeOf(t reflect.Type) *shape {
	switch t.Kind() {
	case reflect.String:
		return &shape{kind: reflect.String}
	case reflect.Pointer:
		return &shape{kind: reflect.Pointer, size: int64(t.Elem().Size()), elem: shapeOf(t.Elem())}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return nil
		}
		return &shape{kind: reflect.Slice, size: int64(t.Elem().Size()), elem: shapeOf(t.Elem())}
	case reflect.Struct:
		if t == tagsType {
			return &shape{kind: reflect.Struct, tags: true}
		}
		s := &shape{kind: reflect.Struct}
		for i := range t.NumField() {
			if f := shapeOf(t.Field(i).Type); f != nil {
				s.fields = append(s.fields, shapeField{i, f})
			}
		}
		if len(s.fields) > 0 {
			return s
		}
	}
	return nil
}

// footprint is the memory that a decoded request holds besides its frame, in bytes.
func (rt *route) footprint(msg kmsg.Request) int64 {
	if rt.shape == nil {
		return 0
	}
	return rt.shape.measure(reflect.ValueOf(msg))
}

// measure adds up what v points to.
func (s *shape) measure(v reflect.Value) (n int64) {
	switch {
	case s.tags:
		if tags := int64(v.Field(0).Len()); tags > 0 {
			n = tagMapBytes + (tags-1)*manyTags
		}
	case s.kind == reflect.String:
		n = int64(v.Len())
	case s.kind == reflect.Struct:
		for _, f := range s.fields {
			n += f.shape.measure(v.Field(f.index))
		}
	case v.IsNil():
	case s.kind == reflect.Pointer:
		n = s.size
		if s.elem != nil {
			n += s.elem.measure(v.Elem())
		}
	case s.kind == reflect.Slice:
		n = int64(v.Len()) * s.size
		for i := 0; s.elem != nil && i < v.Len(); i++ {
			n += s.elem.measure(v.Index(i))
		}
	}
	return n
}
