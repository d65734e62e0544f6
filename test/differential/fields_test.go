package differential

import (
	"bytes"
	"reflect"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// shape says which fields of a kmsg type one version has: those that change the encoding when they change.
type shape struct {
	fields   map[string]*shape // by name; the shape of the elements for structs and lists of structs
	nullable map[string]bool   // lists whose null is not the empty list
}

var shapes struct {
	mu    sync.Mutex // guards the field below
	known map[[2]int16]*shape
}

// shapeOf tries every field of a response once for each version.
func shapeOf(key, version int16) *shape {
	shapes.mu.Lock()
	defer shapes.mu.Unlock()
	if s, ok := shapes.known[[2]int16{key, version}]; ok {
		return s
	}
	resp := kmsg.ResponseForKey(key)
	resp.SetVersion(version)
	root := reflect.ValueOf(resp).Elem()
	fill(root)
	s := probe(root, func() []byte { return resp.AppendTo(nil) })
	if shapes.known == nil {
		shapes.known = map[[2]int16]*shape{}
	}
	shapes.known[[2]int16{key, version}] = s
	return s
}

// fill gives every list of structs one element, and every pointer to a struct something to point to.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			setDefaults(f.Index(0))
			fill(f.Index(0))
		case f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct:
			f.Set(reflect.New(f.Type().Elem()))
			setDefaults(f.Elem())
			fill(f.Elem())
		case f.Kind() == reflect.Struct && v.Type().Field(i).Name != "UnknownTags":
			fill(f)
		}
	}
}

func setDefaults(v reflect.Value) {
	if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
		d.Default()
	}
}

func probe(v reflect.Value, encode func() []byte) *shape {
	s := &shape{fields: map[string]*shape{}, nullable: map[string]bool{}}
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Name, v.Field(i)
		if name == "Version" || name == "UnknownTags" || !f.CanSet() {
			continue
		}
		before := reflect.ValueOf(f.Interface())
		was := encode()
		changed := false
		for _, other := range others(f) {
			f.Set(other)
			changed = changed || !bytes.Equal(was, encode())
		}
		if f.Kind() == reflect.Slice && changed {
			f.Set(reflect.MakeSlice(f.Type(), 0, 0))
			empty := encode()
			f.SetZero()
			s.nullable[name] = !bytes.Equal(empty, encode())
		}
		f.Set(before)
		switch {
		case !changed:
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			s.fields[name] = probe(f.Index(0), encode)
		case f.Kind() == reflect.Struct:
			s.fields[name] = probe(f, encode)
		case f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct:
			s.fields[name] = probe(f.Elem(), encode)
		default:
			s.fields[name] = nil
		}
	}
	return s
}

// others are values that a field might have instead.
func others(f reflect.Value) []reflect.Value {
	t := f.Type()
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Bool:
		v.SetBool(!f.Bool())
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(f.Int() + 1)
	case reflect.Uint16, reflect.Uint32:
		v.SetUint(f.Uint() + 1)
	case reflect.Float64:
		v.SetFloat(f.Float() + 1)
	case reflect.String:
		v.SetString(f.String() + "x")
	case reflect.Array:
		reflect.Copy(v, f)
		v.Index(0).SetUint(f.Index(0).Uint() + 1)
	case reflect.Slice:
		length := 0 // a list of structs has one element by now
		if t.Elem().Kind() != reflect.Struct {
			length = 1
		}
		v.Set(reflect.MakeSlice(t, length, length))
	case reflect.Pointer:
		if t.Elem().Kind() != reflect.Struct {
			v.Set(reflect.New(t.Elem()))
			full := reflect.New(t.Elem())
			for _, o := range others(full.Elem()) {
				full.Elem().Set(o)
			}
			return []reflect.Value{v, full}
		}
	case reflect.Struct:
		v.Set(f)
		for i := range v.NumField() {
			if v.Type().Field(i).Name == "UnknownTags" {
				continue
			}
			for _, o := range others(v.Field(i)) {
				v.Field(i).Set(o)
			}
		}
	}
	return []reflect.Value{v}
}
