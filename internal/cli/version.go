package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// versionDocument is the output of version in JSON.
type versionDocument struct {
	Version string `json:"version"`
	// Commit is the full hash, "" if the build does not know it.
	Commit string `json:"commit"`
	// Modified is true if files differed from the commit.
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

type versionDetail struct{ outputFlag }

// Run prints the version.
func (c *versionDetail) Run(p *Process) error {
	v := p.version()
	return c.say(p, v, "%s\n", v)
}

func (v versionDocument) String() string {
	out := "tidegate " + v.Version
	if v.Commit != "" {
		commit := v.Commit[:min(12, len(v.Commit))]
		if v.Modified {
			commit += ", modified"
		}
		out += " (" + commit + ")"
	}
	return fmt.Sprintf("%s %s %s", out, v.Go, v.Platform)
}

// version returns what the build set, completed from what Go stores in a binary.
func (p *Process) version() versionDocument {
	v := versionDocument{Version: p.Version, Commit: p.Commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		if v.Version == "" && info.Main.Version != "(devel)" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && v.Commit == "":
				v.Commit = s.Value
			case s.Key == "vcs.modified" && p.Commit == "":
				v.Modified = s.Value == "true"
			}
		}
	}
	v.Version = cmp.Or(v.Version, "devel")
	return v
}

// versionFlag is --version.
type versionFlag bool

// BeforeReset prints the version, before kong asks for a command.
func (versionFlag) BeforeReset(app *kong.Kong, p *Process) error {
	err := p.write([]byte(p.version().String() + "\n"))
	app.Exit(0)
	return err
}
