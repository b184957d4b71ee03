package breaker

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// MarshalText returns the permit as text, by which [Breaker.Permit] of any process has it reported: such as the API's
// instance that gets the report of a program which got the permit from another one. The zero Permit is empty.
func (p Permit) MarshalText() ([]byte, error) {
	if p.c == nil {
		return nil, nil
	}
	p.endSlot() // another process may report the text
	until, holding := int64(0), p.holds
	if p.confined {
		holding |= confinedInText
	}
	if !p.until.IsZero() {
		until = p.until.UnixMilli()
	}
	return fmt.Appendf(nil, "%d %d %d %d %d %d %d %s %d %d %s %s", p.id, p.generation, holding, until, p.cost, p.keyCost, p.at,
		p.c.id, p.slotRef.slot, p.slotRef.epoch, p.draws.text(), p.key), nil
}

// Permit returns a permit of this destination from its text ([Permit.MarshalText]). Until it is reported, or its lease
// ends, the process that acquired it counts it as in flight. The caller takes care that it is reported or released
// once. The error says that the text is not a permit.
func (b *Breaker) Permit(text []byte) (Permit, error) {
	if len(text) == 0 {
		return Permit{}, nil
	}
	p := Permit{c: b.core, handed: true}
	var until int64
	var holding holds
	var by, drew string
	var at slotRef
	n, err := fmt.Sscan(string(text), &p.id, &p.generation, &holding, &until, &p.cost, &p.keyCost, &p.at, &by, &at.slot, &at.epoch, &drew)
	if err != nil || n != 11 {
		return Permit{}, errors.New("breaker: the text is not a permit")
	}
	p.holds, p.confined = holding&^confinedInText, holding&confinedInText != 0
	p.key = string(text[strings.LastIndexByte(string(text), ' ')+1:])
	if err := validKey(p.key); err != nil {
		return Permit{}, fmt.Errorf("breaker: permit: %w", err)
	}
	p.draws = b.drawsOfText(drew)
	if until != 0 {
		p.until = time.UnixMilli(until)
	}
	if by == b.id {
		p.slotRef = at
	}
	return p, nil
}
