package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a program pays for a library, stripped, beside go-redis alone and asynq's client: -v prints it.
func TestLibrariesStaySmall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		program   string
		megabytes float64 // at most; 0: for comparison
		modules   int
	}{
		{"redis", 0, 0},
		{"asynq", 0, 0},
		{"jobs", 10, 7},
		{"breaker", 8.5, 7},
	} {
		if testing.Short() && c.megabytes == 0 {
			continue
		}
		source := "./testdata/size/" + c.program
		binary := filepath.Join(dir, c.program)
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, source).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", c.program, err, out)
		}
		info, err := os.Stat(binary)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", source).Output()
		if err != nil {
			t.Fatal(err)
		}
		modules := strings.Fields(string(out))
		slices.Sort(modules)
		modules = slices.Compact(modules)
		modules = slices.DeleteFunc(modules, func(m string) bool { return strings.HasSuffix(m, "/bench") })
		size := float64(info.Size()) / 1e6
		t.Logf("%-8s %5.1f MB, %2d modules", c.program, size, len(modules))
		if c.megabytes > 0 && (size > c.megabytes || len(modules) > c.modules) {
			t.Errorf("%s has %.1f MB and %d modules, want at most %.1f and %d: %s", c.program, size, len(modules), c.megabytes, c.modules, strings.Join(modules, " "))
		}
	}
}
