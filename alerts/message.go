package alerts

import (
	"strings"

	"github.com/slack-go/slack"
)

// The examples of messages in testdata and the pictures of them in docs/images/alerts
// are made by the real functions:
//
//go:generate go test -run ^(TestMessages|TestPreviews)$ -count=1 . -args -update

// message is what is posted: blocks for people who see them, and a text for
// notifications and for clients that do not.
type message struct {
	Text   string
	Blocks []slack.Block
}

// mostText is how long a message's Text may be, in characters: all that a
// notification shows, and far below Slack's 4000.
const mostText = 1000

// writer writes messages.
type writer struct {
	publicURL string // base of links, "" for none
	mention   string // who is paged, as configured
}

// compose returns a message of a sheet. The parts of the text are joined to one line;
// foreign ones have been made inert.
func compose(s *sheet, parts ...string) message {
	return message{Text: cut(strings.Join(parts, ""), mostText), Blocks: s.list}
}
