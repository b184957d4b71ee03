package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// missing fails the test where CI is set, and skips it elsewhere.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "" {
		t.Skip(what)
	}
	t.Fatal(what)
}

// npmInstall copies the files of a package into a directory that the test owns, and installs what its package.json names, and
// more packages. It returns the directory.
func npmInstall(t *testing.T, files string, more ...string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(files)); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"}, more...)
	install := exec.CommandContext(t.Context(), "npm", args...)
	install.Dir = folder
	if out, err := install.CombinedOutput(); err != nil {
		missing(t, fmt.Sprintf("npm cannot install the packages of %s/package.json, which this test needs: %v\n%s", files, err, out))
	}
	return folder
}

// codeBlock returns the first block of a language in a page.
func codeBlock(t *testing.T, page, language string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s has no block of %s", page, language)
	}
	return string(m[1])
}
