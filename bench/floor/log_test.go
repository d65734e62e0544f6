package floor

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// batch makes a batch of so many records and bytes, right but for its records.
func batch(records, size int) []byte {
	b := make([]byte, size)
	binary.BigEndian.PutUint32(b[8:], uint32(size-12))
	binary.BigEndian.PutUint32(b[23:], uint32(records-1))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

func TestAppendAndFind(t *testing.T) {
	l, err := openLog(t.TempDir(), "t", 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if base, err := l.append(batch(3, 100)); err != nil || base != int64(3*i) {
			t.Fatalf("batch %d at %d: %v", i, base, err)
		}
	}
	for _, c := range []struct{ offset, limit, at, size int64 }{
		{0, 1000, 0, 1000},  // all
		{4, 250, 100, 200},  // whole batches only, from the one that holds the offset
		{4, 10, 100, 100},   // one at least
		{29, 1, 900, 100},   // the last record
		{30, 1000, 1000, 0}, // nothing yet
	} {
		at, size, next, grown := l.find(c.offset, c.limit)
		if at != c.at || size != c.size || next != 30 || grown == nil {
			t.Errorf("offset %d, at most %d bytes: %d bytes at %d, next %d; want %d at %d", c.offset, c.limit, size, at, next, c.size, c.at)
		}
	}
	broken := batch(1, 100)
	broken[80]++
	for name, b := range map[string][]byte{"a wrong CRC": broken, "half a batch": batch(1, 100)[:70], "nothing": nil} {
		if _, err := l.append(b); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if _, _, next, _ := l.find(1<<62, 0); next != 30 {
		t.Errorf("the log ends at %d after what was refused", next)
	}
}

func TestUnknownRequestsAreRefused(t *testing.T) {
	request := func(key, version int16) []byte {
		b := binary.BigEndian.AppendUint16(nil, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		return append(b, 0, 0, 0, 1, 0xff, 0xff)
	}
	if _, _, err := decode(request(8, 2)); err == nil {
		t.Error("a floor has no OffsetCommit")
	}
	if _, _, err := decode(request(1, 99)); err == nil {
		t.Error("a fetch of an unknown version was read")
	}
	req, id, err := decode(append(request(18, 99), 0))
	if _, newer := req.(*unsupported); err != nil || id != 1 || !newer {
		t.Errorf("ApiVersions of a newer client: %T, %v", req, err)
	}
}
