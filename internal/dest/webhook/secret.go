package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

// prefix marks the secrets of symmetric signatures.
const prefix = "whsec_"

// The length of a secret in bytes, as the specification wants it.
const (
	minBytes = 24
	maxBytes = 64
)

// HowTo says how to make a secret.
const HowTo = `make one with: echo "whsec_$(openssl rand -base64 32)"`

// Secret is a key that webhooks are signed with. It prints as [secret].
type Secret struct{ key []byte }

// ParseSecret reads a secret in the form whsec_ and the base64 of 24 to 64 random bytes.
// Errors say what is wrong, as "is empty" or "has 3 bytes …"; they do not repeat the text.
// See HowTo.
func ParseSecret(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), prefix)
	switch {
	case strings.TrimSpace(text) == "":
		return Secret{}, errors.New("is empty")
	case !ok:
		return Secret{}, errors.New("does not begin with " + prefix)
	}
	// Receivers' libraries know this alphabet only, and want the padding.
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	switch {
	case err != nil:
		return Secret{}, errors.New("is no base64 behind " + prefix)
	case len(key) < minBytes || len(key) > maxBytes:
		return Secret{}, fmt.Errorf("has %d bytes behind %s, must have %d to %d", len(key), prefix, minBytes, maxBytes)
	}
	return Secret{key}, nil
}

// ParseSecrets reads one or more secrets with spaces or commas between them. Each of
// them signs every message, so that receivers may exchange one for another at their own
// time. Errors are ParseSecret's, all of them together.
func ParseSecrets(text string) ([]Secret, error) {
	parts := strings.FieldsFunc(text, func(r rune) bool {
		return r == ' ' || r == ',' || r == '\t' || r == '\n' || r == '\r'
	})
	if len(parts) == 0 {
		_, err := ParseSecret("")
		return nil, err
	}
	out := make([]Secret, 0, len(parts))
	var errs []error
	for i, part := range parts {
		s, err := ParseSecret(part)
		switch {
		case err == nil:
			out = append(out, s)
		case len(parts) == 1:
			errs = append(errs, err)
		default:
			errs = append(errs, fmt.Errorf("the secret in place %d %w", i+1, err))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

const hidden = "[secret]"

// String hides the secret.
func (Secret) String() string { return hidden }

// GoString hides the secret.
func (Secret) GoString() string { return hidden }

// MarshalText hides the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// Text is the secret itself, as it was given.
func (s Secret) Text() string { return prefix + base64.StdEncoding.EncodeToString(s.key) }
