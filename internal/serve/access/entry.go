package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/base/text"
)

// Entry is a token in the file.
type Entry struct {
	// Name of its owner. Several entries may have the same, while a token is being
	// replaced by the next.
	Name string `json:"name"`
	// Scopes are the token's scopes, at least one.
	Scopes []Scope `json:"scopes"`
	// Hash is "sha256:" and the SHA-256 of the token in hex.
	Hash string `json:"hash"`
	// Created is for people; it may be left out.
	Created *time.Time `json:"created,omitempty"`
	// ExpiresAt is when the token stops being good; nil: never.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`

	Bounds
}

// Expired reports whether the token is not good any more.
func (e Entry) Expired(now time.Time) bool { return e.ExpiresAt != nil && !now.Before(*e.ExpiresAt) }

// namePattern matches names of tokens.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,62}$`)

const nameFix = "1 to 63 letters, digits and . _ : @ -, starting with a letter or digit"

// tokenPrefix is what our tokens begin with, so that scanners for secrets know them.
const tokenPrefix = "tg_"

// maxToken bounds what is taken for a token.
const maxToken = 512

// NewToken makes a token of 256 random bits, and its entry for the file, created now.
// It is the only time that the token is known. Errors: the name or a scope is wrong.
func NewToken(name string, scopes []Scope, now time.Time) (token string, entry Entry, err error) {
	if !namePattern.MatchString(name) {
		return "", Entry{}, fmt.Errorf("%s cannot be the name of a token: %s", text.Quote(name, shownOfEntry), nameFix)
	}
	if len(scopes) == 0 {
		return "", Entry{}, errors.New("a token needs a scope; there are " + joined(Scopes))
	}
	token = tokenPrefix + randomText()
	created := now.UTC().Truncate(time.Second)
	return token, Entry{Name: name, Scopes: scopes, Hash: hashOf(token).String(), Created: &created}, nil
}

// randomText is 256 random bits in 43 characters that need no escaping anywhere.
func randomText() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// hash is the SHA-256 of a token.
type hash [sha256.Size]byte

func hashOf(token string) hash { return sha256.Sum256([]byte(token)) }

const hashPrefix = "sha256:"

func (h hash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

// parseHash is the inverse of String.
func parseHash(text string) (h hash, ok bool) {
	digits, found := strings.CutPrefix(text, hashPrefix)
	if !found || len(digits) != hex.EncodedLen(len(h)) {
		return hash{}, false
	}
	_, err := hex.Decode(h[:], []byte(digits))
	return h, err == nil
}

// shownOfEntry is how many characters of a name or scope an error shows: more could be a token
// in the wrong place.
const shownOfEntry = 13

// ID is what people call an entry: the first digits of its hash.
func (e Entry) ID() string { return strings.TrimPrefix(e.Hash, hashPrefix)[:12] }
