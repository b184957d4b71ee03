package cli

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tidegate/tidegate/internal/app"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/config"
)

type configCmds struct {
	Check   configCheckCmd   `cmd:"" help:"Print the effective configuration, or all that is wrong with it."`
	Schema  configSchemaCmd  `cmd:"" help:"Print the JSON Schema of the destinations file, for editors."`
	Convert configConvertCmd `cmd:"" help:"Print the destinations of variables as a destinations file."`
}

type configSchemaCmd struct{}

// Run prints the schema.
func (c *configSchemaCmd) Run(p *Process) error { return p.write(config.Schema) }

type configConvertCmd struct{}

// Run prints the file.
func (c *configConvertCmd) Run(p *Process) error {
	cfg, err := p.loadWarning(config.Load, everything)
	if err != nil {
		return err
	}
	if err := cfg.RequireDestinations(); err != nil {
		return err
	}
	out, err := cfg.Convert()
	if err != nil {
		return err
	}
	return p.write(out)
}

type configCheckCmd struct{ outputFlag }

// Run prints the configuration.
func (c *configCheckCmd) Run(p *Process) error {
	cfg, err := p.loadWarning(config.Load, everything)
	if err == nil {
		err = app.CheckAPI(cfg)
	}
	if err != nil {
		return err
	}
	if len(cfg.Destinations) == 0 {
		p.warn("no destination is configured, and a worker needs one; set DESTINATION_0_NAME and DESTINATION_0_URL")
	}
	if names := cfg.WithoutRetry(); len(names) > 0 {
		p.warn(fmt.Sprintf("jobs of %s without a retry policy are called once: a failure of the API fails them; set DESTINATION_<i>_RETRY, to none if that is meant", strings.Join(names, ", ")))
	}
	if c.json() {
		return p.printJSON(cfg.Document())
	}
	var b bytes.Buffer
	if err := cfg.Print(&b); err != nil {
		return fmt.Errorf("config check: %w", err)
	}
	return p.write(cleanLines(b.Bytes()))
}

// cleanLines cleans each line.
func cleanLines(b []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(b) {
		out.WriteString(text.OneLine(string(bytes.TrimRight(line, "\n"))))
		out.WriteByte('\n')
	}
	return out.Bytes()
}
