// Package seal encrypts what processes share through Redis, with AES-256-GCM.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// keyBytes is the length of a key: AES-256.
const keyBytes = 32

// Sealer encrypts and decrypts.
type Sealer struct {
	keys []cipher.AEAD // the first one encrypts, each decrypts
}

// New reads keys of 32 bytes in base64, with commas between them: the first one encrypts and each
// decrypts, so that one can replace another. The error holds no part of a key.
func New(keys string) (*Sealer, error) {
	s := &Sealer{}
	for _, one := range strings.FieldsFunc(keys, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		one = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(one), "=")
		key, err := base64.RawStdEncoding.DecodeString(one)
		if err != nil {
			return nil, errors.New("is not base64")
		}
		if len(key) != keyBytes {
			return nil, fmt.Errorf("has %d bytes, not %d", len(key), keyBytes)
		}
		if err := s.add(key); err != nil {
			return nil, err
		}
	}
	if len(s.keys) == 0 {
		return nil, errors.New("is empty")
	}
	return s, nil
}

// Own returns a Sealer whose key only this process has.
func Own() (*Sealer, error) {
	key := make([]byte, keyBytes)
	_, _ = rand.Read(key) // never fails
	s := &Sealer{}
	return s, s.add(key)
}

func (s *Sealer) add(key []byte) error {
	block, err := aes.NewCipher(key)
	if err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	s.keys = append(s.keys, aead)
	return nil
}

// Seal encrypts text and binds it to a name, without which it cannot be decrypted.
func (s *Sealer) Seal(name string, text []byte) []byte {
	return s.keys[0].Seal(nil, nil, text, []byte(name)) //nolint:gosec // the cipher makes a random nonce
}

// Open decrypts what Seal has returned for the same name. It fails if it is something else,
// or none of the keys fits.
func (s *Sealer) Open(name string, sealed []byte) ([]byte, error) {
	for _, key := range s.keys {
		if text, err := key.Open(nil, nil, sealed, []byte(name)); err == nil {
			return text, nil
		}
	}
	return nil, errors.New("seal: no key fits")
}
