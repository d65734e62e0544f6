package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// header is a request header: key, version, correlation id (v0), client id (v1), tagged fields (v2). The client id
// is not compact in any version (KIP-511).
type header struct {
	key, version  int16
	correlationID int32
	clientID      []byte // points into the frame; nil for null
}

var errShortHeader = errors.New("request header is cut off")

// parseFixed reads the part that every version has.
func parseFixed(frame []byte) (h header, rest []byte, err error) {
	if len(frame) < 8 {
		return h, nil, errShortHeader
	}
	h.key = int16(binary.BigEndian.Uint16(frame))
	h.version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.correlationID = int32(binary.BigEndian.Uint32(frame[4:]))
	return h, frame[8:], nil
}

// parseClient reads the client id, and in a flexible version the tagged fields, which are skipped (a null or
// empty client id does not end the header).
func (h *header) parseClient(rest []byte, flexible bool) (body []byte, err error) {
	if len(rest) < 2 {
		return nil, errShortHeader
	}
	n := int(int16(binary.BigEndian.Uint16(rest)))
	rest = rest[2:]
	if n > len(rest) {
		return nil, fmt.Errorf("client id of %d bytes in a header of %d", n, len(rest))
	}
	if n >= 0 {
		h.clientID, rest = rest[:n], rest[n:]
	}
	if !flexible {
		return rest, nil
	}
	return skipTags(rest)
}

// skipTags passes over tagged fields (KIP-482): a count, then each field's number, size and bytes.
func skipTags(b []byte) ([]byte, error) {
	count, b, ok := uvarint(b)
	for ; ok && count > 0; count-- {
		var size uint32
		if _, b, ok = uvarint(b); !ok {
			break
		}
		if size, b, ok = uvarint(b); !ok {
			break
		}
		if uint64(size) > uint64(len(b)) {
			return nil, fmt.Errorf("tagged field of %d bytes where %d are left", size, len(b))
		}
		b = b[size:]
	}
	if !ok {
		return nil, errors.New("tagged fields are cut off or overflow")
	}
	return b, nil
}

// uvarint reads an unsigned varint of at most 32 bits in five bytes.
func uvarint(b []byte) (v uint32, rest []byte, ok bool) {
	for i := 0; i < len(b) && i < 5; i++ {
		if i == 4 && b[i] > 0x0f {
			return 0, nil, false
		}
		v |= uint32(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return v, b[i+1:], true
		}
	}
	return 0, nil, false
}

// appendReplyHeader starts a reply: room for the length, the correlation id, and in a flexible version an empty
// tag section. ApiVersions never has one, because its client cannot know yet what the broker speaks (KIP-511).
func appendReplyHeader(dst []byte, rt *route, version int16, correlationID int32) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if rt.flexible(version) && rt.Key != apiVersionsKey {
		dst = append(dst, 0)
	}
	return dst
}

// appendVersionsMismatch is the answer to an ApiVersions of a version that is not served: version 0,
// UNSUPPORTED_VERSION, and the one row that lets the client ask again (KIP-511, measured on Kafka 4.4).
func appendVersionsMismatch(dst []byte, rt *route, correlationID int32) []byte {
	const unsupportedVersion = 35
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	dst = binary.BigEndian.AppendUint16(dst, unsupportedVersion)
	dst = binary.BigEndian.AppendUint32(dst, 1)
	dst = binary.BigEndian.AppendUint16(dst, uint16(rt.Key))
	dst = binary.BigEndian.AppendUint16(dst, uint16(rt.AdvertisedMin))
	return binary.BigEndian.AppendUint16(dst, uint16(rt.Max))
}
