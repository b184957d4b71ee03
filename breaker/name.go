package breaker

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
)

var (
	destinationPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	namespacePattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,30}$`)
	keyPattern         = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)
)

// Namespace is the prefix of all keys and channels of an installation's breakers in Redis.
// "" means [DefaultNamespace]. Its methods read and operate breakers by their names, from any process.
type Namespace string

// DefaultNamespace is the [Namespace] of [Options] that name none.
const DefaultNamespace Namespace = "tidegate"

// Validate returns an error if n is not valid: want [a-z0-9][a-z0-9-]{0,30}, or "".
func (n Namespace) Validate() error {
	if n != "" && !namespacePattern.MatchString(string(n)) {
		return fmt.Errorf("namespace %q is not valid: want 1 to 31 of a-z, 0-9 and '-', not starting with '-'", string(n))
	}
	return nil
}

func validDestination(name string) error {
	if !destinationPattern.MatchString(name) {
		return fmt.Errorf("destination %q is not valid: want 1 to 63 of a-z, 0-9 and '-', not starting with '-'", name)
	}
	return nil
}

// validKey accepts "" as the destination's own breaker.
func validKey(key string) error {
	if key != "" && !keyPattern.MatchString(key) {
		return &keyError{key}
	}
	return nil
}

type keyError struct{ key string }

func (e *keyError) Error() string {
	return fmt.Sprintf("key %q is not valid: want 1 to 128 of A-Z, a-z, 0-9 and '._:@-', starting with a letter or digit", e.key)
}

func (e *keyError) Unwrap() error { return ErrInvalidKey }

// ToKey makes a key of any string, always the same: text itself if it is a valid key, otherwise
// a hash of it, which shows nothing of text. Do not pass secrets: a valid key appears as it
// is in Redis, errors and events.
func ToKey(text string) string {
	if validKey(text) == nil {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ParseName splits the name of a breaker: "D" for a destination ([a-z0-9][a-z0-9-]{0,62}), "D/K" for a key under it
// ([A-Za-z0-9][A-Za-z0-9._:@-]{0,127}).
func ParseName(name string) (destination, key string, err error) {
	destination, key, keyed := strings.Cut(name, "/")
	if err := validDestination(destination); err != nil {
		return "", "", fmt.Errorf("breaker: name %q: %w", name, err)
	}
	if keyed && key == "" {
		return "", "", fmt.Errorf("breaker: name %q: the key after the slash is missing", name)
	}
	if err := validKey(key); err != nil {
		return "", "", fmt.Errorf("breaker: name %q: %w", name, err)
	}
	return destination, key, nil
}

// parse returns the place of a breaker by its name.
func (n Namespace) parse(name string) (place, error) {
	destination, key, err := ParseName(name)
	if err == nil {
		err = n.Validate()
	}
	if err != nil {
		return place{}, err
	}
	return n.placeOf(destination, key), nil
}

// ProcessName is the name of this process: host:pid, with some random characters in a
// container, where every pid is 1 and the host can be the same.
func ProcessName() string { return processName() }

var processName = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	name := fmt.Sprintf("%s:%d", host, os.Getpid())
	if os.Getpid() == 1 {
		name += "-" + strings.ToLower(rand.Text()[:6])
	}
	return name
})

var instances = struct {
	mu     sync.Mutex
	byRole map[string]int
}{byRole: map[string]int{}}

// InstanceName returns a name for one more part of this process in the same role:
// [ProcessName] for the first one, then ProcessName with "-2", "-3" and so on.
func InstanceName(role string) string {
	instances.mu.Lock()
	defer instances.mu.Unlock()
	instances.byRole[role]++
	if n := instances.byRole[role]; n > 1 {
		return fmt.Sprintf("%s-%d", ProcessName(), n)
	}
	return ProcessName()
}
