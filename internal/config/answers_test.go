package config

import (
	"strings"
	"testing"
)

// A rule that cannot be compiled is reported with file, rule and column.
func TestAnswersFile(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "rules:\n- when: status == 409\n  then: ok\n- when: status == 403 && bdy.code == 1\n  then: limted\n", 0o600)
	for _, row := range []struct {
		path string
		want []string
	}{
		{path, []string{
			`file "` + path + `": line 4: rule 2, then: "limted" is not an outcome; use one of ok, limited, retry, fail, reschedule, unauthorized`,
			`file "` + path + `": line 4: rule 2, when: column 18: unknown name bdy; see docs/answers.md`,
		}},
		{path + ".missing", []string{`cannot be read: no such file or directory`}},
		{writeFile(t, "[]", 0o600), nil},
	} {
		_, warnings, err := Load([]string{
			"DESTINATION_0_NAME=shop", "DESTINATION_0_URL=https://api.example.com/items", "DESTINATION_0_ANSWERS_FILE=" + row.path,
		})
		for _, want := range row.want {
			if err == nil || !strings.Contains(err.Error(), "DESTINATION_0_ANSWERS_FILE: ") || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		if len(row.want) == 0 && (err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].String(), "holds no rule")) {
			t.Errorf("%v, %v", err, warnings)
		}
	}
}
