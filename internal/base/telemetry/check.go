package telemetry

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/tidegate/tidegate/internal/base/text"
)

// problem is a setting that cannot be used. Its text quotes no value that could be secret.
type problem struct{ variable, text string }

// checks collects the problems of an environment.
type checks struct {
	environment
	problems []problem
	unusable bool // nothing can be sent
}

func (c *checks) add(variable, text string) { c.problems = append(c.problems, problem{variable, text}) }

// check returns what is wrong, and whether spans can be sent all the same. The exporter and the SDK silently ignore
// settings that they cannot read.
func (e environment) check() ([]problem, bool) {
	c := &checks{environment: e}
	c.endpoint()
	c.headers()
	c.choices()
	c.certificates()
	if variable, value := c.setting("TIMEOUT"); variable != "" {
		c.milliseconds(variable, value)
	}
	for _, variable := range []string{"OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"} {
		if value := c.environment[variable]; value != "" {
			c.milliseconds(variable, value)
		}
	}
	return c.problems, !c.unusable
}

func (c *checks) endpoint() {
	variable, value := c.setting("ENDPOINT")
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		c.add(variable, "is not an http or https URL; write it like http://127.0.0.1:4318")
		c.unusable = true
		return
	}
	if u.User != nil || u.RawQuery != "" {
		c.add(variable, "its user, password and query are not sent; set "+prefix+"HEADERS")
	}
	if u.Port() == "4317" {
		c.add(variable, "4317 is usually the port for gRPC, which is not built in; that for HTTP is usually 4318")
	}
}

func (c *checks) headers() {
	for _, variable := range []string{prefix + "HEADERS", prefix + "TRACES_HEADERS"} {
		if c.environment[variable] == "" {
			continue
		}
		for pair := range strings.SplitSeq(c.environment[variable], ",") {
			name, value, found := strings.Cut(pair, "=")
			sent, err := url.PathUnescape(value)
			switch {
			case !found:
				c.add(variable, "has an entry without \"=\", which is left out; write it like name=value,name=value")
			case !httpguts.ValidHeaderFieldName(strings.TrimSpace(name)):
				c.add(variable, "has an entry without a valid name of a header, which is left out")
			case err != nil:
				c.add(variable, "the value of "+strings.TrimSpace(name)+" is not percent-encoded as it should be, and is left out; write % as %25")
			case !httpguts.ValidHeaderFieldValue(strings.TrimSpace(sent)):
				c.add(variable, "the value of "+strings.TrimSpace(name)+" has characters that a header must not have")
				c.unusable = true
			}
		}
	}
}

// choices checks variables with a fixed set of values.
func (c *checks) choices() {
	if v := strings.ToLower(c.environment["OTEL_SDK_DISABLED"]); v != "" && v != "false" {
		c.add("OTEL_SDK_DISABLED", "is neither true nor false; false is assumed")
	}
	if named := c.list("OTEL_TRACES_EXPORTER"); named != nil && !slices.Equal(named, []string{"otlp"}) {
		c.add("OTEL_TRACES_EXPORTER", "names an exporter that is not built in; otlp and none are")
		c.unusable = !slices.Contains(named, "otlp")
	}
	if variable, value := c.setting("PROTOCOL"); variable != "" && value != "http/protobuf" && value != "http/json" {
		c.add(variable, "is neither http/protobuf nor http/json, which are built in; http/protobuf is used, at the port for it (usually 4318)")
	}
	if variable, value := c.setting("COMPRESSION"); variable != "" && value != "gzip" && value != "none" {
		c.add(variable, "is neither gzip nor none; none is used")
	}
	for _, name := range c.list("OTEL_PROPAGATORS") {
		if !slices.Contains([]string{"tracecontext", "baggage", "none"}, name) {
			c.add("OTEL_PROPAGATORS", "names a format that is not built in; tracecontext, baggage and none are")
		}
	}
}

func (c *checks) certificates() {
	if variable, file := c.setting("CERTIFICATE"); variable != "" {
		pem, _, err := text.ReadFile(file, maxPEMFile)
		switch {
		case err != nil:
			c.add(variable, "the file cannot be read: "+text.WithoutPath(err).Error())
		case !x509.NewCertPool().AppendCertsFromPEM(pem):
			c.add(variable, "the file has no certificate in PEM form")
		}
	}
	certificate, certificateFile := c.setting("CLIENT_CERTIFICATE")
	key, keyFile := c.setting("CLIENT_KEY")
	switch {
	case certificate == "" && key == "":
	case key == "":
		c.add(certificate, "is set without "+strings.Replace(certificate, "CLIENT_CERTIFICATE", "CLIENT_KEY", 1)+"; it is not used")
	case certificate == "":
		c.add(key, "is set without "+strings.Replace(key, "CLIENT_KEY", "CLIENT_CERTIFICATE", 1)+"; it is not used")
	default:
		if err := pair(certificateFile, keyFile); err != nil {
			c.add(certificate, "it and "+key+" cannot be used: "+text.WithoutPath(err).Error())
		}
	}
}

// maxPEMFile bounds what is read of a file, in bytes.
const maxPEMFile = 4 << 20

// pair returns why a certificate and its key cannot be used.
func pair(certificateFile, keyFile string) error {
	certificate, _, err := text.ReadFile(certificateFile, maxPEMFile)
	if err != nil {
		return err //nolint:wrapcheck // the caller names the variables
	}
	key, _, err := text.ReadFile(keyFile, maxPEMFile)
	if err != nil {
		return err //nolint:wrapcheck // the caller names the variables
	}
	_, err = tls.X509KeyPair(certificate, key)
	return err //nolint:wrapcheck // the caller names the variables
}

func (c *checks) milliseconds(variable, value string) {
	if n, err := strconv.Atoi(value); err != nil || n < 0 {
		c.add(variable, "is not a whole number; the default is used (times are in milliseconds, without a unit)")
	}
}
