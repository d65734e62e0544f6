package history

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ValueHeaderBytes is the size of the smallest value.
const ValueHeaderBytes = 52

// Value is what a record's value says about itself. Producer and Number together are unique in a history.
type Value struct {
	Producer        int32  `json:"producer"`
	Number          int64  `json:"number"`
	Txn             int64  `json:"txn,omitempty"`
	SourcePartition int32  `json:"source_partition,omitempty"` // with Copied: the record this one was made from
	SourceOffset    int64  `json:"source_offset,omitempty"`
	Copied          bool   `json:"copied,omitempty"`
	Amount          int64  `json:"amount,omitempty"`
	Length          int32  `json:"length"` // bytes of the whole value
	CRC             uint32 `json:"crc"`    // CRC-32C of all its bytes but these four
}

// Key is what makes the value unique.
func (v Value) Key() Key { return Key{v.Producer, v.Number} }

func (v Value) String() string { return fmt.Sprintf("%d/%d", v.Producer, v.Number) }

// Encode makes the bytes of a value of at least sizeBytes, and returns the value with Length and CRC set. The filler is
// a function of the key, so no two values share it.
func (v Value) Encode(sizeBytes int) (Value, []byte) {
	b := make([]byte, max(sizeBytes, ValueHeaderBytes))
	v.Length = int32(len(b))
	binary.BigEndian.PutUint32(b[4:], uint32(v.Length))
	binary.BigEndian.PutUint32(b[8:], uint32(v.Producer))
	binary.BigEndian.PutUint64(b[12:], uint64(v.Number))
	binary.BigEndian.PutUint64(b[20:], uint64(v.Txn))
	source := uint32(v.SourcePartition)
	if v.Copied {
		source |= 1 << 31
	}
	binary.BigEndian.PutUint32(b[28:], source)
	binary.BigEndian.PutUint64(b[32:], uint64(v.SourceOffset))
	binary.BigEndian.PutUint64(b[40:], uint64(v.Amount))
	x := uint64(v.Number)<<20 ^ uint64(v.Producer) ^ 0x9e3779b97f4a7c15
	for i := ValueHeaderBytes; i+8 <= len(b); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b[i:], x)
	}
	v.CRC = crc32.Checksum(b[4:], castagnoli)
	binary.BigEndian.PutUint32(b, v.CRC)
	return v, b
}

// Decode reads the bytes of a value. An error means that no producer can have sent them.
func Decode(b []byte) (Value, error) {
	if len(b) < ValueHeaderBytes {
		return Value{}, fmt.Errorf("%d bytes are no value", len(b))
	}
	source := binary.BigEndian.Uint32(b[28:])
	v := Value{
		Length: int32(binary.BigEndian.Uint32(b[4:])), CRC: binary.BigEndian.Uint32(b),
		Producer: int32(binary.BigEndian.Uint32(b[8:])), Number: int64(binary.BigEndian.Uint64(b[12:])), Txn: int64(binary.BigEndian.Uint64(b[20:])),
		SourcePartition: int32(source &^ (1 << 31)), Copied: source>>31 == 1, SourceOffset: int64(binary.BigEndian.Uint64(b[32:])),
		Amount: int64(binary.BigEndian.Uint64(b[40:])),
	}
	if int(v.Length) != len(b) {
		return v, fmt.Errorf("a value of %d bytes says that it has %d", len(b), v.Length)
	}
	if sum := crc32.Checksum(b[4:], castagnoli); sum != v.CRC {
		return v, fmt.Errorf("value %s has CRC %08x and says %08x", v, sum, v.CRC)
	}
	return v, nil
}
