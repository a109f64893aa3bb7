package main

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/grpc"
)

// An encoded protobuf message.
type message []byte

// Passes messages on as they are.
type codec struct{}

var raw = grpc.ForceCodec(codec{})

func (codec) Name() string { return "proto" }

func (codec) Marshal(v interface{}) ([]byte, error) { return v.(message), nil }

func (codec) Unmarshal(data []byte, v interface{}) error {
	*v.(*message) = append(message(nil), data...)
	return nil
}

// A message with one string field.
func text(number int, text string) message {
	size := make([]byte, binary.MaxVarintLen64)
	size = size[:binary.PutUvarint(size, uint64(len(text)))]
	m := append(message{byte(number<<3 | 2)}, size...)
	return append(m, text...)
}

// Calls visit for each field, with its bytes or its number.
func (m message) visit(visit func(field uint64, data []byte, number uint64)) {
	varint := func() uint64 {
		value, size := binary.Uvarint(m)
		if size <= 0 {
			panic(fmt.Sprintf("a damaged message: %x", []byte(m)))
		}
		m = m[size:]
		return value
	}
	for len(m) > 0 {
		tag := varint()
		switch tag & 7 {
		case 0:
			visit(tag>>3, nil, varint())
		case 2:
			size := varint()
			visit(tag>>3, m[:size], 0)
			m = m[size:]
		default:
			panic(fmt.Sprintf("wire type %d in a message that has none", tag&7))
		}
	}
}

func (m message) all(field uint64) (found [][]byte) {
	m.visit(func(number uint64, data []byte, _ uint64) {
		if number == field {
			found = append(found, data)
		}
	})
	return found
}

func (m message) first(field uint64) []byte {
	if found := m.all(field); len(found) > 0 {
		return found[0]
	}
	return nil
}

func (m message) number(field uint64) (value uint64) {
	m.visit(func(number uint64, _ []byte, read uint64) {
		if number == field {
			value = read
		}
	})
	return value
}

// What the checks look at in a pod.
type identified struct {
	name, namespace, uid, version string
	isDeleted, isMarkedDeleted    bool
}

// Reads a pod by the field numbers of core/v1 Pod and meta/v1 ObjectMeta.
func identity(pod message) identified {
	meta := message(pod.first(1))
	entry := func(field uint64, key string) string {
		for _, pair := range meta.all(field) {
			if string(message(pair).first(1)) == key {
				return string(message(pair).first(2))
			}
		}
		return ""
	}
	return identified{
		name:            string(meta.first(1)),
		namespace:       string(meta.first(3)),
		uid:             string(meta.first(5)),
		version:         entry(11, "version"),
		isDeleted:       meta.first(9) != nil,
		isMarkedDeleted: entry(12, "pods-api/deleted") == "true",
	}
}
