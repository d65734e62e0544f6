package wire

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// tagMapBytes is what kmsg spends on the first unknown tag of a struct: a map of one group. On the wire it is two
// bytes more than no tag.
const (
	tagMapBytes  = 352
	tagWireBytes = 2
	// manyTags is what many tags of one struct cost for each byte on the wire, with the growth of their map.
	manyTags = 80
)

// decodedWeights bounds, for each version, how many bytes of memory one byte of a request can turn into when kmsg
// decodes it; index 0 is minVersion.
//
// kmsg refuses a count that the rest of the frame cannot hold, so nothing is allocated for a number alone. But an
// element of three bytes may decode to a struct of sixty, and an unknown tag of two bytes to a map. The bound is
// the worst ratio of any list's element, found by encoding lists of one and of two empty elements.
func decodedWeights(key, minVersion, maxVersion int16) []int64 {
	var out []int64
	for v := minVersion; v <= maxVersion; v++ {
		req := kmsg.RequestForKey(key)
		req.SetVersion(v)
		w := weigher{req: req, worst: 1}
		if req.IsFlexible() {
			w.note(manyTags, 1) // at the end of the request
		}
		w.structure(reflect.ValueOf(req).Elem())
		out = append(out, int64(w.worst))
	}
	return out
}

// weigher walks the lists of one request at one version.
type weigher struct {
	req   kmsg.Request
	worst int
}

func (w *weigher) encodedLen() int { return len(w.req.AppendTo(nil)) }

// structure visits the fields of an addressable struct that is part of req.
func (w *weigher) structure(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case !f.CanSet():
		case f.Kind() == reflect.Struct && f.Type() != tagsType:
			w.structure(f)
		case f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct:
			f.Set(newDefault(f.Type().Elem()))
			w.structure(f.Elem())
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() != reflect.Uint8:
			w.list(f)
		}
	}
}

// list weighs the elements of a list, then what is inside them.
func (w *weigher) list(f reflect.Value) {
	elem := f.Type().Elem()
	f.Set(reflect.MakeSlice(f.Type(), 0, 2))
	one := reflect.Append(f, newDefault(elem).Elem())
	f.Set(one)
	short := w.encodedLen()
	f.Set(reflect.Append(one, newDefault(elem).Elem()))
	wire := w.encodedLen() - short
	f.Set(one)
	if wire <= 0 { // not in this version
		f.SetZero()
		return
	}
	size := allocated(elem)
	w.note(size, wire)
	if w.req.IsFlexible() && hasTags(elem) {
		w.note(size+tagMapBytes, wire+tagWireBytes)
	}
	if elem.Kind() == reflect.Struct {
		w.structure(f.Index(0))
	}
}

// note allows an eighth more for the allocator's size classes.
func (w *weigher) note(size, wire int) { w.worst = max(w.worst, (size+size/8+wire-1)/wire) }

var tagsType = reflect.TypeFor[kmsg.Tags]()

// allocated is the memory of one element with what it points to when it is empty on the wire.
func allocated(t reflect.Type) int {
	size := int(t.Size())
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			size += allocated(t.Field(i).Type) - int(t.Field(i).Type.Size())
		}
	case reflect.Pointer:
		size += max(allocated(t.Elem()), 16)
	}
	return size
}

// hasTags says whether a struct, or one inside it, keeps unknown tags.
func hasTags(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == tagsType {
		return true
	}
	if t.Kind() == reflect.Struct {
		for i := range t.NumField() {
			if hasTags(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}

// newDefault makes a pointer to a t with kmsg's defaults, which optional fields are left out of the wire for.
func newDefault(t reflect.Type) reflect.Value {
	p := reflect.New(t)
	if d, ok := p.Interface().(interface{ Default() }); ok {
		d.Default()
	}
	return p
}
