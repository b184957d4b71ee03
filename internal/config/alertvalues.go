package config

import (
	"regexp"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// The types of what alerts are about and whom they reach.
type (
	offDuration time.Duration // 0 is off
	burstText   string        // jobs in a time, in the form of breaker.Rate, or off
	channelText string        // a channel of Slack
	mentionText string        // whom a message of Slack mentions
)

// off is how an alert is switched off.
const off = "off"

// The time that failed jobs are counted over.
const (
	minBurstWithin = time.Second
	maxBurstWithin = 24 * time.Hour
)

var (
	// Letters without a lower case are in the names of channels too.
	channelName = regexp.MustCompile(`^#?[\p{Ll}\p{Lm}\p{Lo}\p{M}\p{N}_-]{1,80}$`)
	channelID   = regexp.MustCompile(`^[CGD][A-Z0-9]+$`)
	personID    = regexp.MustCompile(`^[UWS][A-Z0-9]+$`)
	personName  = regexp.MustCompile(`^@[\p{L}\p{M}\p{N}][\p{L}\p{M}\p{N}._-]{0,79}$`)
	// slackMention is what Slack itself writes for a mention.
	slackMention = regexp.MustCompile(`^<(@[UW][A-Z0-9]+|!subteam\^S[A-Z0-9]+|!here|!channel|!everyone)>$`)
)

func isOff(s string) bool { return strings.EqualFold(strings.TrimSpace(s), off) }

func readOffDuration(s string) (any, error) {
	if isOff(s) {
		return offDuration(0), nil
	}
	d, err := readDuration(s)
	if err != nil {
		return nil, err
	}
	return offDuration(d.(time.Duration)), nil
}

func readBurst(s string) (any, error) {
	if isOff(s) {
		return burstText(off), nil
	}
	r, err := breaker.ParseRate(s)
	switch {
	case err != nil:
		return nil, &unreadable{problem: "is no number of jobs in a time"}
	case r.Per < minBurstWithin:
		return nil, &unreadable{problem: "counts over too short a time"}
	case r.Per > maxBurstWithin:
		return nil, &unreadable{problem: "counts over too long a time"}
	}
	return burstText(r.String()), nil
}

func readChannel(s string) (any, error) {
	s = strings.TrimSpace(s)
	switch lower := strings.ToLower(s); {
	case channelName.MatchString(s), channelID.MatchString(s) && likeID(s):
		return channelText(s), nil
	case channelName.MatchString(lower):
		return nil, &unreadable{problem: "is not the name or id of a channel", fix: "write its name in lower case: " + lower}
	}
	return nil, &unreadable{problem: "is not the name or id of a channel"}
}

func readMention(s string) (any, error) {
	s = strings.TrimSpace(s)
	switch {
	case personName.MatchString(s), slackMention.MatchString(s), personID.MatchString(s) && likeID(s):
		return mentionText(s), nil
	case personName.MatchString("@" + s):
		return nil, &unreadable{problem: "is not a mention", fix: "write @" + s + ", or the id of a person or user group"}
	}
	return nil, &unreadable{problem: "is not a mention"}
}

// likeID tells an id of Slack from a word in capitals: ids are long or hold a
// digit.
func likeID(s string) bool { return len(s) >= 9 || strings.ContainsAny(s, "0123456789") }
