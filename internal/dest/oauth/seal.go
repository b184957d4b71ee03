package oauth

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// sealed are the tokens that a record keeps encrypted.
type sealed struct {
	Access  string `json:"a"`
	Refresh string `json:"r,omitempty"`
}

// seal encrypts the tokens of a record.
func (s *Source) seal(name string, t sealed) ([]byte, error) {
	plain, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("oauth: encrypt: %w", err)
	}
	return s.o.Sealer.Seal(s.sealedAs(name), plain), nil
}

// open decrypts the tokens of a record.
func (s *Source) open(name, text string) (sealed, error) {
	var t sealed
	plain, err := s.o.Sealer.Open(s.sealedAs(name), []byte(text))
	if err == nil {
		err = json.Unmarshal(plain, &t)
	}
	if err != nil {
		return t, fmt.Errorf("oauth: decrypt: %w", err)
	}
	return t, nil
}

// sealedAs is what the encrypted tokens of a record are bound to.
func (s *Source) sealedAs(name string) string {
	return strings.Join([]string{"oauth", string(s.o.Namespace), s.o.Destination, name}, "\x00")
}

// hash identifies secrets without giving them away: tokens cannot be guessed.
func hash(secrets ...string) string {
	text := strings.Join(secrets, "\x00")
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}
