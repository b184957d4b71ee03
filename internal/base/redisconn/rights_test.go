package redisconn

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// leastRights are the rules that users.acl gives.
func leastRights(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/redis/users.acl")
	if err != nil {
		t.Fatal(err)
	}
	first, own, _ := strings.Cut(string(text), "\n")
	if first != "user default off" {
		t.Errorf("users.acl begins with %q: who has no account may do everything", first)
	}
	return strings.Fields(own)[4:]
}

// The file that people are given allows exactly what is asked for, and what it takes
// to connect.
func TestUsersFileHasAllRights(t *testing.T) {
	t.Parallel()
	connecting := strings.Fields("+hello +ping +client|setname +select +info +wait +eval")
	want := slices.Concat(strings.Fields("resetkeys resetchannels -@all"), connecting, strings.Fields("~tidegate:* ~asynq:* &tidegate:* &asynq:cancel"),
		keyRights, channelRights, otherRights, clusterRights)
	got := leastRights(t)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("users.acl (-want +got):\n%s", diff)
	}
}

func TestCheckRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, tt := range []struct {
		without string
		missing []string
	}{
		{"", nil},
		{"-hset", []string{"+hset"}},
		{"-hset -zadd -publish -scan", []string{"+hset", "+zadd", "+publish", "+scan"}},
		{"-eval", []string{"+eval"}},
		{"-script|load", []string{"+script|load"}},
		{"resetkeys ~asynq:*", []string{"~tidegate:*"}},
		{"resetkeys", []string{"~tidegate:*", "~asynq:*"}},
		{"resetkeys ~tidegate:* -get", []string{"~asynq:*", "+get"}},
		{"resetchannels &asynq:*", []string{"&tidegate:*"}},
		{"+@all", nil},
	} {
		name := redistest.Name(t, "u")
		server.SetUser(t, name, "pw", append(leastRights(t), strings.Fields(tt.without)...)...)
		err := CheckRights(t.Context(), open(t, redistest.As(server.URL(), name, "pw")), "tidegate")
		var lacks *RightsError
		if errors.As(err, &lacks); lacks == nil {
			lacks = &RightsError{}
		}
		if diff := cmp.Diff(tt.missing, lacks.Missing); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.without, diff)
		}
	}
	// Who cannot tell is not in the way.
	if err := CheckRights(t.Context(), open(t, "redis://"+fakeRedis(t, "")), "tidegate"); err != nil {
		t.Error(err)
	}
	if err := CheckRights(t.Context(), open(t, "embedded:"), "tidegate"); err != nil {
		t.Error(err)
	}
}

func TestCheckRightsOnACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	for without, want := range map[string][]string{
		"": nil, "-command": {"+command"}, "-asking -time": {"+time", "+asking"},
	} {
		c.SetUser(t, "app", "pw", append(leastRights(t), strings.Fields(without)...)...)
		err := CheckRights(t.Context(), open(t, redistest.As(c.URL(), "app", "pw")), "tidegate")
		var lacks *RightsError
		if errors.As(err, &lacks); lacks == nil {
			lacks = &RightsError{}
		}
		if diff := cmp.Diff(want, lacks.Missing); diff != "" {
			t.Errorf("%q (-want +got):\n%s", without, diff)
		}
	}
}
