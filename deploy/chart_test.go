package deploy_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const chart = "helm/tidegate/"

func decodeJSON(t *testing.T, path string, into any) {
	t.Helper()
	if err := json.Unmarshal(read(t, path), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func TestChartShipsCopiesOfTheSource(t *testing.T) {
	t.Parallel()
	for source, copied := range map[string]string{
		rulesFile:     chart + "files/rules.yml",
		dashboardFile: chart + "files/tidegate.json",
	} {
		if !bytes.Equal(read(t, source), read(t, copied)) {
			t.Errorf("deploy/%s differs from its source: run cp deploy/%s deploy/%s", copied, source, copied)
		}
	}
}

// schema is what the tests look at of a JSON schema.
type schema struct {
	Properties           map[string]*schema
	AdditionalProperties any
}

func (s *schema) closed() bool { return s.AdditionalProperties == false }

func loadSchema(t *testing.T) *schema {
	t.Helper()
	s := new(schema)
	decodeJSON(t, chart+"values.schema.json", s)
	return s
}

func TestValuesAreExplainedAndChecked(t *testing.T) {
	t.Parallel()
	var doc yaml.Node
	parse(t, chart+"values.yaml", &doc, false)
	s := loadSchema(t)
	// Not a value of ours: Helm hands it to subcharts.
	delete(s.Properties, "global")
	checkValues(t, "", doc.Content[0], s)
}

// checkValues holds a mapping of values.yaml against its schema, key by key.
func checkValues(t *testing.T, path string, values *yaml.Node, s *schema) {
	t.Helper()
	if !s.closed() {
		t.Errorf("values.schema.json: %s allows any key, so that a misspelt one would be taken", path)
	}
	var keys []string
	for i := 0; i < len(values.Content); i += 2 {
		key, value := values.Content[i], values.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		keys = append(keys, key.Value)
		if key.HeadComment == "" {
			t.Errorf("values.yaml: %s has no comment", at)
		}
		sub := s.Properties[key.Value]
		if sub == nil {
			t.Errorf("values.schema.json: has no %s", at)
			continue
		}
		// Objects with keys of their own; those of Kubernetes are its to check.
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 && sub.Properties != nil {
			checkValues(t, at, value, sub)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Properties)) {
		// What has no default is left out of values.yaml.
		optional := []string{"claims"}
		if !slices.Contains(keys, key) && !slices.Contains(optional, key) {
			t.Errorf("values.yaml: %s.%s of the schema has no default", path, key)
		}
	}
}

// Pods get the restricted profile without a value being set.
func TestDefaultsAreRestricted(t *testing.T) {
	t.Parallel()
	var v struct {
		Pod struct {
			NonRoot bool                  `yaml:"runAsNonRoot"`
			User    int                   `yaml:"runAsUser"`
			Seccomp struct{ Type string } `yaml:"seccompProfile"`
		} `yaml:"podSecurityContext"`
		Container struct {
			Escalate     *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnly     bool  `yaml:"readOnlyRootFilesystem"`
			Capabilities struct{ Drop, Add []string }
		} `yaml:"containerSecurityContext"`
	}
	parse(t, chart+"values.yaml", &v, false)
	if !v.Pod.NonRoot || v.Pod.User != 65532 || v.Pod.Seccomp.Type != "RuntimeDefault" {
		t.Errorf("pods run as %+v", v.Pod)
	}
	c := v.Container
	if c.Escalate == nil || *c.Escalate || !c.ReadOnly || !slices.Equal(c.Capabilities.Drop, []string{"ALL"}) || c.Capabilities.Add != nil {
		t.Errorf("containers run as %+v", c)
	}
}

// No spelling of REDIS_URL that Tidegate takes brings a password into a ConfigMap: the schema
// refuses it, and so do the templates where the schema is left out.
func TestChartRefusesPasswordsInRedisURL(t *testing.T) {
	t.Parallel()
	var s struct {
		Properties struct {
			Redis struct {
				Properties struct{ URL struct{ Pattern string } }
			}
		}
	}
	decodeJSON(t, chart+"values.schema.json", &s)
	pattern := regexp.MustCompile(s.Properties.Redis.Properties.URL.Pattern)
	checks := regexp.MustCompile(`regexMatch "([^"]+)" \$redis\b`).FindAllStringSubmatch(string(read(t, chart+"templates/_checks.tpl")), -1)
	if len(checks) != 2 {
		t.Fatalf("_checks.tpl looks at $redis %d times, want 2", len(checks))
	}
	refused := func(url string) bool {
		return slices.ContainsFunc(checks, func(m []string) bool {
			return regexp.MustCompile(m[1]).MatchString(strings.ToLower(strings.TrimSpace(url)))
		})
	}
	for _, url := range []string{
		"redis://:pw@h", " redis://:pw@h", "\tredis://:pw@h:6379/0\n", "REDIS://:pw@h", "Rediss://user:pw@h:6379", "redis://:p/w@h", "redis://u:p@w@h",
		"redis-sentinel://u:pw@h1,h2/0?master=m", "redis-cluster://:pw@h1,h2",
	} {
		if pattern.MatchString(url) {
			t.Errorf("the schema takes %q", url)
		}
		if !refused(url) {
			t.Errorf("_checks.tpl takes %q", url)
		}
	}
	for _, name := range []string{"Sentinel_Password", "sentinel%5Fpassword"} {
		if url := "redis-sentinel://h/0?master=m&" + name + "=pw"; !refused(url) {
			t.Errorf("_checks.tpl takes %q", url)
		}
	}
	for _, url := range []string{
		"", "redis://redis:6379/0", "rediss://user@redis.example.com:6380", "redis-socket:///run/redis.sock", "redis://[::1]:6379/0",
		"redis-sentinel://h1:26379,h2:26379/0?master=mymaster", "redis-cluster://h1:7000,h2:7001",
	} {
		if !pattern.MatchString(url) || refused(url) {
			t.Errorf("%q is refused", url)
		}
	}
}

// The API's pods are not told the URLs of destinations, of which some are secrets.
func TestAPIGetsNoURLs(t *testing.T) {
	t.Parallel()
	_, of, found := strings.Cut(string(read(t, chart+"templates/_environment.tpl")), `{{- define "tidegate.apiConfigData" -}}`)
	of, _, end := strings.Cut(of, "{{- define")
	if !found || !end {
		t.Fatal("_environment.tpl has no apiConfigData")
	}
	if !strings.Contains(of, "$d.name") || strings.Contains(of, "$d.url") || strings.Contains(of, "callbackUrl") {
		t.Errorf("the API's environment:%s", of)
	}
}

// Nobody but those who are named reaches the workers, unless the operator opens them.
func TestNetworkPolicyIsOn(t *testing.T) {
	t.Parallel()
	var v struct {
		Policy struct {
			Enabled bool
			Ingress struct {
				MetricsFrom []any `yaml:"metricsFrom"`
			}
		} `yaml:"networkPolicy"`
	}
	parse(t, chart+"values.yaml", &v, false)
	if !v.Policy.Enabled || len(v.Policy.Ingress.MetricsFrom) == 0 {
		t.Errorf("networkPolicy of values.yaml: %+v", v.Policy)
	}
}

// What is downloaded to build, test and run Tidegate is what was looked at: actions by
// commit, images by digest, the compiler by version.
func TestDownloadsArePinned(t *testing.T) {
	t.Parallel()
	workflow := string(read(t, "../.github/workflows/ci.yml"))
	uses := regexp.MustCompile(`uses: (\S+)( # v\d+\.\d+\.\d+)?`).FindAllStringSubmatch(workflow, -1)
	commit := regexp.MustCompile(`^actions/[a-z-]+@[0-9a-f]{40}$`)
	for _, m := range uses {
		if !commit.MatchString(m[1]) || m[2] == "" {
			t.Errorf("ci.yml uses %s, which is no commit with its version behind it", m[0])
		}
	}
	if len(uses) < 3 || !strings.Contains(workflow, "make vulncheck") {
		t.Errorf("ci.yml uses %d actions, and looks for vulnerabilities: %v", len(uses), strings.Contains(workflow, "make vulncheck"))
	}
	image := regexp.MustCompile(`docker\.io/[^\s}]+`)
	digest := regexp.MustCompile(`:[^:@]+@sha256:[0-9a-f]{64}$`)
	for _, file := range []string{"Dockerfile", "compose.yaml"} {
		found := image.FindAllString(string(read(t, file)), -1)
		if len(found) == 0 {
			t.Errorf("%s names no image", file)
		}
		for _, name := range found {
			if !digest.MatchString(name) {
				t.Errorf("%s: %s has no digest", file, name)
			}
		}
	}
	if !regexp.MustCompile(`(?m)^toolchain go\d+\.\d+\.\d+$`).Match(read(t, "../go.mod")) {
		t.Error("go.mod names no toolchain")
	}
}
