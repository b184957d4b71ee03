package breaker

import (
	"crypto/rand"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
)

var (
	destinationPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	keyPattern         = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)
)

func validDestination(name string) error {
	if !destinationPattern.MatchString(name) {
		return fmt.Errorf("destination %q is not valid: want 1 to 63 of a-z, 0-9 and '-', not starting with '-'", name)
	}
	return nil
}

// validKey accepts "" as the destination's own breaker.
func validKey(key string) error {
	if key != "" && !keyPattern.MatchString(key) {
		return fmt.Errorf("key %q is not valid: want 1 to 128 of A-Z, a-z, 0-9 and '._:@-', starting with a letter or digit", key)
	}
	return nil
}

// ParseName takes the name of a breaker apart: "D" is that of a destination
// ([a-z0-9][a-z0-9-]{0,62}), "D/K" that of a key under it
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
